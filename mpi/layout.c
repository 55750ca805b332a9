/* layout.c - see layout.h. The pure part: who sits where. Files are in layout_file.c. */
#include "mpi/layout.h"
#include "mpi/layout_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES_FOR_STANDBYS = 3, /* raft needs three voters to survive the loss of one */
    NODES_BIG = 64, /* from here on four standbys, and one router more for each so many nodes */
};

/* What the choice of a node looks at, all counted while the layout grows. */
struct use {
    uint32_t *node;       /* [n_nodes] control ranks (all but workers) on the node */
    uint8_t *node_voter;  /* [n_nodes] holds the scheduler or a standby */
    uint8_t *node_router; /* [n_nodes] */
    uint32_t *rack;       /* [n_racks] control ranks in the rack */
    uint32_t *rack_voter, *rack_router;
    uint32_t *zone_of_rack; /* [n_racks] zone number of the rack's first node */
    uint32_t *zone_voter;   /* [n_racks] by zone number: there are no more zones than racks */
};

static int compare_hosts(const void *a, const void *b)
{
    const struct layout_node *const *x = a, *const *y = b;
    return strcmp((*x)->host, (*y)->host);
}

static bool name_is_plain(const char *s)
{
    size_t n = strnlen(s, LAYOUT_NAME_BYTES);
    if (n == LAYOUT_NAME_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f || s[i] == '"' || s[i] == '\\')
            return false;
    return true;
}

int layout_check_nodes(const struct layout_node *nodes, uint32_t n_nodes, struct err *e)
{
    if (n_nodes == 0 || n_nodes > LAYOUT_MAX_NODES)
        return err_set(e, ERR_CONFIG, "a layout of %u nodes: expected 1 to %d", n_nodes,
                       LAYOUT_MAX_NODES);
    for (uint32_t i = 0; i < n_nodes; i++) {
        if (!name_is_plain(nodes[i].host) || nodes[i].host[0] == 0)
            return err_set(e, ERR_CONFIG, "node %u: '%.63s' is no host name", i, nodes[i].host);
        if (!name_is_plain(nodes[i].rack) || !name_is_plain(nodes[i].zone))
            return err_set(e, ERR_CONFIG, "node %u (%s): rack or zone has a character not allowed",
                           i, nodes[i].host);
    }
    const struct layout_node **sorted = malloc(n_nodes * sizeof *sorted);
    if (!sorted)
        return err_set(e, ERR_NOMEM, "no memory for a layout of %u nodes", n_nodes);
    for (uint32_t i = 0; i < n_nodes; i++)
        sorted[i] = &nodes[i];
    qsort(sorted, n_nodes, sizeof *sorted, compare_hosts);
    int rc = 0;
    for (uint32_t i = 1; i < n_nodes && rc == 0; i++)
        if (strcmp(sorted[i - 1]->host, sorted[i]->host) == 0)
            rc = err_set(e, ERR_CONFIG, "node %s is named twice", sorted[i]->host);
    free(sorted);
    return rc;
}

int layout_find_racks(struct layout *l, struct err *e)
{
    l->rack_of_node = calloc(l->n_nodes, sizeof *l->rack_of_node);
    uint32_t *first = calloc(l->n_nodes, sizeof *first); /* [rack] a node of it */
    if (!l->rack_of_node || !first) {
        free(first);
        return err_set(e, ERR_NOMEM, "no memory for a layout of %u nodes", l->n_nodes);
    }
    l->n_racks = 0;
    for (uint32_t i = 0; i < l->n_nodes; i++) {
        uint32_t r = 0;
        while (r < l->n_racks && strcmp(l->nodes[first[r]].rack, l->nodes[i].rack) != 0)
            r++;
        if (r == l->n_racks)
            first[l->n_racks++] = i;
        l->rack_of_node[i] = r;
    }
    free(first);
    return 0;
}

static void use_fini(struct use *u)
{
    free(u->node);
    free(u->node_voter);
    free(u->node_router);
    free(u->rack);
    free(u->rack_voter);
    free(u->rack_router);
    free(u->zone_of_rack);
    free(u->zone_voter);
}

static int use_init(struct use *u, const struct layout *l, struct err *e)
{
    memset(u, 0, sizeof *u);
    u->node = calloc(l->n_nodes, sizeof *u->node);
    u->node_voter = calloc(l->n_nodes, 1);
    u->node_router = calloc(l->n_nodes, 1);
    u->rack = calloc(l->n_racks, sizeof *u->rack);
    u->rack_voter = calloc(l->n_racks, sizeof *u->rack_voter);
    u->rack_router = calloc(l->n_racks, sizeof *u->rack_router);
    u->zone_of_rack = calloc(l->n_racks, sizeof *u->zone_of_rack);
    u->zone_voter = calloc(l->n_racks, sizeof *u->zone_voter);
    uint32_t *first = calloc(l->n_racks, sizeof *first);
    if (!u->node || !u->node_voter || !u->node_router || !u->rack || !u->rack_voter ||
        !u->rack_router || !u->zone_of_rack || !u->zone_voter || !first) {
        free(first);
        use_fini(u);
        return err_set(e, ERR_NOMEM, "no memory for a layout of %u nodes", l->n_nodes);
    }
    for (uint32_t i = l->n_nodes; i-- > 0;)
        first[l->rack_of_node[i]] = i;
    uint32_t n_zones = 0;
    for (uint32_t r = 0; r < l->n_racks; r++) {
        uint32_t same = 0;
        while (same < r && strcmp(l->nodes[first[same]].zone, l->nodes[first[r]].zone) != 0)
            same++;
        u->zone_of_rack[r] = same < r ? u->zone_of_rack[same] : n_zones++;
    }
    free(first);
    return 0;
}

/* Lower is better, compared in order. */
struct cost {
    uint32_t zone, rack, node, rack_all;
};

static bool cost_less(struct cost a, struct cost b)
{
    if (a.zone != b.zone)
        return a.zone < b.zone;
    if (a.rack != b.rack)
        return a.rack < b.rack;
    if (a.node != b.node)
        return a.node < b.node;
    return a.rack_all < b.rack_all;
}

/* The allowed node where one more of the role hurts least: voters of the control group
 * (scheduler, standbys) must not die together, nor must routers. UINT32_MAX when every node has
 * one already. */
static uint32_t pick_node(const struct layout *l, const struct use *u, int role,
                          const uint8_t *allowed)
{
    uint32_t best = UINT32_MAX;
    struct cost best_cost = {0};
    for (uint32_t i = 0; i < l->n_nodes; i++) {
        uint32_t rack = l->rack_of_node[i];
        if (!allowed[i] || (role == LAYOUT_ROUTER ? u->node_router[i] : u->node_voter[i]))
            continue;
        struct cost c = {role == LAYOUT_ROUTER ? 0 : u->zone_voter[u->zone_of_rack[rack]],
                         role == LAYOUT_ROUTER ? u->rack_router[rack] : u->rack_voter[rack],
                         u->node[i], u->rack[rack]};
        if (best == UINT32_MAX || cost_less(c, best_cost)) {
            best = i;
            best_cost = c;
        }
    }
    return best;
}

static void add_control(struct layout *l, struct use *u, uint32_t node, int role)
{
    CHECK(node < l->n_nodes); /* plan() has counted: there are enough nodes */
    uint32_t rack = l->rack_of_node[node];
    u->node[node]++;
    u->rack[rack]++;
    if (role == LAYOUT_ROUTER) {
        u->node_router[node] = 1;
        u->rack_router[rack]++;
    } else {
        u->node_voter[node] = 1;
        u->rack_voter[rack]++;
        u->zone_voter[u->zone_of_rack[rack]]++;
    }
    l->ranks[l->n_ranks++] = (struct layout_rank){node, (uint8_t)role};
}

static uint32_t count_standbys(uint32_t n_nodes, const struct layout_wish *w)
{
    if (!w->standbys || n_nodes < NODES_FOR_STANDBYS)
        return 0;
    return n_nodes < NODES_BIG ? 2 : 4;
}

static uint32_t count_routers(uint32_t n_nodes, const struct layout_wish *w)
{
    if (w->routers)
        return w->routers;
    return n_nodes == 1 ? 1 : 2 + n_nodes / NODES_BIG;
}

/* Which nodes get no engines: one for the scheduler and as many more as there are routers or
 * standbys (a standby may sit beside a router, neither beside the scheduler). Racks give their
 * first nodes, then their second ones, and so on. */
static void choose_dedicated(const struct layout *l, uint32_t n_control, uint8_t *control,
                             uint32_t *given /* [n_racks] */)
{
    uint32_t taken = 0;
    for (uint32_t round = 0; taken < n_control; round++) {
        memset(given, 0, l->n_racks * sizeof *given);
        for (uint32_t i = 0; i < l->n_nodes && taken < n_control; i++) {
            if (given[l->rack_of_node[i]]++ == round) {
                control[i] = 1;
                taken++;
            }
        }
    }
}

static void fill_ranks(struct layout *l, struct use *u, const struct layout_wish *w,
                       uint32_t standbys, uint32_t routers, uint8_t *allowed,
                       const uint8_t *control)
{
    uint32_t scheduler = 0;
    while (!allowed[scheduler])
        scheduler++;
    add_control(l, u, scheduler, LAYOUT_SCHEDULER);
    if (w->dedicated)
        allowed[scheduler] = 0;
    for (uint32_t i = 0; i < standbys; i++)
        add_control(l, u, pick_node(l, u, LAYOUT_STANDBY, allowed), LAYOUT_STANDBY);
    for (uint32_t i = 0; i < routers; i++)
        add_control(l, u, pick_node(l, u, LAYOUT_ROUTER, allowed), LAYOUT_ROUTER);
    for (uint32_t i = 0; i < l->n_nodes; i++)
        if (!control[i])
            l->ranks[l->n_ranks++] = (struct layout_rank){i, LAYOUT_WORKER};
}

static int plan(struct layout *l, const struct layout_wish *w, struct err *e)
{
    uint32_t n = l->n_nodes, standbys = count_standbys(n, w), routers = count_routers(n, w);
    if (routers > n)
        return err_set(e, ERR_CONFIG, "%u routers asked for, but there are %u nodes", routers, n);
    uint32_t n_control = 0;
    if (w->dedicated) {
        n_control = 1 + (standbys > routers ? standbys : routers);
        if (n < n_control + 1)
            return err_set(e, ERR_CONFIG,
                           "control: dedicated needs %u nodes or more (1 scheduler, %u standbys, "
                           "%u routers, and one node for a worker), but there are %u",
                           n_control + 1, standbys, routers, n);
    }
    uint8_t *allowed = malloc(n), *control = calloc(n, 1);
    uint32_t *given = calloc(l->n_racks, sizeof *given);
    struct use u;
    l->ranks = calloc((size_t)1 + standbys + routers + n, sizeof *l->ranks);
    if (!allowed || !control || !given || !l->ranks || use_init(&u, l, NULL) != 0) {
        free(allowed);
        free(control);
        free(given);
        return err_set(e, ERR_NOMEM, "no memory for a layout of %u nodes", n);
    }
    choose_dedicated(l, n_control, control, given);
    if (w->dedicated)
        memcpy(allowed, control, n);
    else
        memset(allowed, 1, n);
    fill_ranks(l, &u, w, standbys, routers, allowed, control);
    use_fini(&u);
    free(allowed);
    free(control);
    free(given);
    return 0;
}

int layout_make(struct layout *l, const struct layout_node *nodes, uint32_t n_nodes,
                const struct layout_wish *w, struct err *e)
{
    struct layout made = {0};
    int rc = layout_check_nodes(nodes, n_nodes, e);
    if (rc)
        return rc;
    made.n_nodes = n_nodes;
    made.nodes = malloc(n_nodes * sizeof *nodes);
    if (!made.nodes)
        return err_set(e, ERR_NOMEM, "no memory for a layout of %u nodes", n_nodes);
    memcpy(made.nodes, nodes, n_nodes * sizeof *nodes);
    rc = layout_find_racks(&made, e);
    if (rc == 0)
        rc = plan(&made, w, e);
    if (rc) {
        layout_fini(&made);
        return rc;
    }
    *l = made;
    return 0;
}

void layout_fini(struct layout *l)
{
    if (!l)
        return;
    free(l->nodes);
    free(l->ranks);
    free(l->rack_of_node);
    memset(l, 0, sizeof *l);
}

/* Slurm says "n1" where the kernel may say "n1.cluster.site", and the other way round. */
static bool same_host(const char *a, const char *b)
{
    size_t na = strcspn(a, "."), nb = strcspn(b, ".");
    if (a[na] == '.' && b[nb] == '.')
        return strcmp(a, b) == 0;
    return na == nb && memcmp(a, b, na) == 0;
}

int layout_verify(const struct layout *l, uint32_t rank, uint32_t n_ranks, const char *host,
                  struct err *e)
{
    if (n_ranks != l->n_ranks)
        return err_set(e, ERR_CONFIG, "rank %u on %s: the layout has %u ranks, the world has %u",
                       rank, host, l->n_ranks, n_ranks);
    if (rank >= l->n_ranks)
        return err_set(e, ERR_CONFIG, "rank %u on %s: the layout ends at rank %u", rank, host,
                       l->n_ranks - 1);
    const char *expected = l->nodes[l->ranks[rank].node].host;
    if (!same_host(expected, host))
        return err_set(e, ERR_CONFIG, "rank %u: the layout expects host %s, found %s", rank,
                       expected, host);
    return 0;
}

uint32_t layout_rack_leader(const struct layout *l, uint32_t rack, const bool *live)
{
    for (uint32_t r = 0; r < l->n_ranks; r++)
        if (l->ranks[r].role == LAYOUT_WORKER && l->rack_of_node[l->ranks[r].node] == rack &&
            (!live || live[r]))
            return r;
    return UINT32_MAX;
}

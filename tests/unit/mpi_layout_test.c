/* mpi_layout_test.c - who sits where, from 1 to 256 nodes, and the files that say so. */
#include "mpi/layout.h"

#include "base/buf.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCHEDULER = 1, STANDBY, ROUTER, WORKER, ROLES };

static struct layout_node *make_nodes(uint32_t n, uint32_t rack_size)
{
    struct layout_node *nodes = calloc(n, sizeof *nodes);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(nodes[i].host, sizeof nodes[i].host, "n%04u", i);
        if (rack_size)
            snprintf(nodes[i].rack, sizeof nodes[i].rack, "rack%u", i / rack_size);
    }
    return nodes;
}

static struct layout make(uint32_t n, uint32_t rack_size, struct layout_wish w)
{
    struct layout_node *nodes = make_nodes(n, rack_size);
    struct layout l;
    struct err e = ERR_INIT;
    int rc = layout_make(&l, nodes, n, &w, &e);
    if (rc)
        fail_msg("%u nodes: %s", n, e.text);
    free(nodes);
    return l;
}

static void expect_error(const struct layout_node *nodes, uint32_t n, struct layout_wish w,
                         const char *words)
{
    struct layout l;
    struct err e = ERR_INIT;
    assert_int_equal(layout_make(&l, nodes, n, &w, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, words));
}

static void count_roles(const struct layout *l, uint32_t count[ROLES])
{
    memset(count, 0, ROLES * sizeof *count);
    for (uint32_t r = 0; r < l->n_ranks; r++)
        count[l->ranks[r].role]++;
}

/* What holds for every layout: order of roles, one worker a node, voters and routers on nodes of
 * their own. */
static void check_rules(const struct layout *l)
{
    uint8_t *voter = calloc(l->n_nodes, 1), *router = calloc(l->n_nodes, 1),
            *worker = calloc(l->n_nodes, 1);
    assert_int_equal(l->ranks[0].role, SCHEDULER);
    for (uint32_t r = 0; r < l->n_ranks; r++) {
        assert_true(r == 0 || l->ranks[r].role > SCHEDULER);
        assert_true(r == 0 || l->ranks[r].role >= l->ranks[r - 1].role);
        assert_true(l->ranks[r].node < l->n_nodes);
        uint8_t *seen = l->ranks[r].role == WORKER   ? worker
                        : l->ranks[r].role == ROUTER ? router
                                                     : voter;
        assert_int_equal(seen[l->ranks[r].node]++, 0);
    }
    free(voter);
    free(router);
    free(worker);
}

static void sizes_give_the_designed_counts(void **state)
{
    static const struct {
        uint32_t nodes, standbys, routers;
    } rows[] = {{1, 0, 1}, {2, 0, 2},  {3, 2, 2},  {4, 2, 2},
                {8, 2, 2}, {63, 2, 2}, {64, 4, 3}, {256, 4, 6}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct layout l = make(rows[i].nodes, 4, (struct layout_wish){.standbys = true});
        uint32_t count[ROLES];
        count_roles(&l, count);
        assert_int_equal(count[SCHEDULER], 1);
        assert_int_equal(count[STANDBY], rows[i].standbys);
        assert_int_equal(count[ROUTER], rows[i].routers);
        assert_int_equal(count[WORKER], rows[i].nodes);
        assert_int_equal(l.n_racks, (rows[i].nodes + 3) / 4);
        check_rules(&l);
        layout_fini(&l);
    }
}

static void control_spreads_over_racks(void **state)
{
    struct layout l = make(64, 8, (struct layout_wish){.standbys = true});
    uint8_t voters[8] = {0}, routers[8] = {0};
    for (uint32_t r = 0; r < l.n_ranks; r++) {
        uint32_t rack = l.rack_of_node[l.ranks[r].node];
        if (l.ranks[r].role <= STANDBY)
            assert_int_equal(voters[rack]++, 0);
        if (l.ranks[r].role == ROUTER)
            assert_int_equal(routers[rack]++, 0);
    }
    layout_fini(&l);
    /* three racks: five voters cannot all be alone, but never three together */
    l = make(66, 22, (struct layout_wish){.standbys = true});
    uint32_t in_rack[3] = {0};
    for (uint32_t r = 0; r < 5; r++)
        in_rack[l.rack_of_node[l.ranks[r].node]]++;
    for (uint32_t i = 0; i < 3; i++)
        assert_in_range(in_rack[i], 1, 2);
    layout_fini(&l);
}

static void standbys_prefer_other_zones(void **state)
{
    struct layout_node *nodes = make_nodes(9, 3);
    for (uint32_t i = 0; i < 9; i++)
        snprintf(nodes[i].zone, sizeof nodes[i].zone, "%s", i < 6 ? "east" : "west");
    struct layout l;
    struct layout_wish w = {.standbys = true};
    assert_int_equal(layout_make(&l, nodes, 9, &w, NULL), 0);
    assert_int_equal(l.rack_of_node[l.ranks[0].node], 0);
    assert_int_equal(l.rack_of_node[l.ranks[1].node], 2); /* the other zone first */
    assert_int_equal(l.rack_of_node[l.ranks[2].node], 1); /* then the other rack */
    layout_fini(&l);
    free(nodes);
}

static void dedicated_nodes_have_no_worker(void **state)
{
    static const uint32_t sizes[] = {4, 8, 64, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct layout l =
            make(sizes[i], 4, (struct layout_wish){.dedicated = true, .standbys = true});
        check_rules(&l);
        uint8_t *worker = calloc(sizes[i], 1);
        for (uint32_t r = 0; r < l.n_ranks; r++)
            if (l.ranks[r].role == WORKER)
                worker[l.ranks[r].node] = 1;
        uint32_t n_workers = 0;
        for (uint32_t r = 0; r < l.n_ranks; r++) {
            n_workers += l.ranks[r].role == WORKER;
            if (l.ranks[r].role != WORKER)
                assert_false(worker[l.ranks[r].node]);
            if (r > 0)
                assert_int_not_equal(l.ranks[r].node, l.ranks[0].node);
        }
        assert_int_equal(n_workers, sizes[i] - (sizes[i] < 64 ? 3 : sizes[i] < 256 ? 5 : 7));
        free(worker);
        layout_fini(&l);
    }
}

static void wishes_are_kept(void **state)
{
    struct layout l = make(8, 4, (struct layout_wish){.routers = 5});
    uint32_t count[ROLES];
    count_roles(&l, count);
    assert_int_equal(count[ROUTER], 5);
    assert_int_equal(count[STANDBY], 0);
    layout_fini(&l);
    l = make(3, 0, (struct layout_wish){.dedicated = true, .routers = 1});
    assert_int_equal(l.n_ranks, 3); /* scheduler, router, worker */
    layout_fini(&l);
}

static void what_does_not_fit_is_named(void **state)
{
    struct layout_node *nodes = make_nodes(8, 4);
    expect_error(nodes, 3, (struct layout_wish){.dedicated = true, .standbys = true},
                 "dedicated needs 4 nodes");
    expect_error(nodes, 2, (struct layout_wish){.routers = 3}, "3 routers");
    expect_error(nodes, 0, (struct layout_wish){0}, "0 nodes");
    expect_error(nodes, LAYOUT_MAX_NODES + 1, (struct layout_wish){0}, "4097 nodes");
    snprintf(nodes[5].host, sizeof nodes[5].host, "n0002");
    expect_error(nodes, 8, (struct layout_wish){0}, "n0002 is named twice");
    snprintf(nodes[5].host, sizeof nodes[5].host, "n\n5");
    expect_error(nodes, 8, (struct layout_wish){0}, "node 5");
    nodes[5].host[0] = 0;
    expect_error(nodes, 8, (struct layout_wish){0}, "node 5");
    memset(nodes[5].host, 'x', sizeof nodes[5].host);
    expect_error(nodes, 8, (struct layout_wish){0}, "node 5");
    free(nodes);
}

static void same_input_gives_same_output(void **state)
{
    struct layout_wish w = {.standbys = true};
    struct layout a = make(256, 16, w), b = make(256, 16, w);
    assert_int_equal(a.n_ranks, b.n_ranks);
    assert_memory_equal(a.nodes, b.nodes, a.n_nodes * sizeof *a.nodes);
    for (uint32_t r = 0; r < a.n_ranks; r++) {
        assert_int_equal(a.ranks[r].node, b.ranks[r].node);
        assert_int_equal(a.ranks[r].role, b.ranks[r].role);
    }
    layout_fini(&a);
    layout_fini(&b);
}

static void rack_leader_moves_by_itself(void **state)
{
    struct layout l = make(8, 4, (struct layout_wish){.standbys = true});
    /* ranks 0-4 are control; workers 5…12 on nodes 0…7 */
    assert_int_equal(layout_rack_leader(&l, 0, NULL), 5);
    assert_int_equal(layout_rack_leader(&l, 1, NULL), 9);
    bool live[13];
    memset(live, 1, sizeof live);
    live[9] = live[10] = false;
    assert_int_equal(layout_rack_leader(&l, 1, live), 11);
    live[11] = live[12] = false;
    assert_int_equal(layout_rack_leader(&l, 1, live), UINT32_MAX);
    assert_int_equal(layout_rack_leader(&l, 7, NULL), UINT32_MAX);
    layout_fini(&l);
}

static void verify_names_the_difference(void **state)
{
    struct layout l = make(4, 2, (struct layout_wish){.standbys = true});
    struct err e = ERR_INIT;
    for (uint32_t r = 0; r < l.n_ranks; r++)
        assert_int_equal(layout_verify(&l, r, l.n_ranks, l.nodes[l.ranks[r].node].host, &e), 0);
    assert_int_equal(layout_verify(&l, 0, l.n_ranks, "n0000.cluster.site", &e), 0);
    assert_int_equal(layout_verify(&l, 0, l.n_ranks, "n00", &e), ERR_CONFIG);
    assert_int_equal(layout_verify(&l, 0, l.n_ranks, "n0003", &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "rank 0"));
    assert_non_null(strstr(e.text, "expects host n0000"));
    assert_non_null(strstr(e.text, "found n0003"));
    assert_int_equal(layout_verify(&l, 0, 3, "n0000", &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "the world has 3"));
    assert_int_equal(layout_verify(&l, l.n_ranks, l.n_ranks, "n0000", &e), ERR_CONFIG);
    layout_fini(&l);
}

static char *temp_folder(void)
{
    static char folder[64];
    snprintf(folder, sizeof folder, "/tmp/exa-layout-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

static void files_come_back(void **state)
{
    char *folder = temp_folder(), json[128], hosts[128];
    snprintf(json, sizeof json, "%s/layout.json", folder);
    snprintf(hosts, sizeof hosts, "%s/hosts", folder);
    struct err e = ERR_INIT;
    struct layout a = make(64, 8, (struct layout_wish){.standbys = true}), b;
    snprintf(a.nodes[3].zone, sizeof a.nodes[3].zone, "east");
    assert_int_equal(layout_write(&a, json, hosts, &e), 0);
    if (layout_read(&b, json, &e))
        fail_msg("%s", e.text);
    assert_int_equal(a.n_ranks, b.n_ranks);
    assert_int_equal(a.n_nodes, b.n_nodes);
    assert_int_equal(a.n_racks, b.n_racks);
    assert_memory_equal(a.rack_of_node, b.rack_of_node, a.n_nodes * sizeof *a.rack_of_node);
    for (uint32_t i = 0; i < a.n_nodes; i++) {
        assert_string_equal(a.nodes[i].host, b.nodes[i].host);
        assert_string_equal(a.nodes[i].rack, b.nodes[i].rack);
        assert_string_equal(a.nodes[i].zone, b.nodes[i].zone);
    }
    FILE *f = fopen(hosts, "r");
    assert_non_null(f);
    char line[128];
    for (uint32_t r = 0; r < a.n_ranks; r++) {
        assert_int_equal(a.ranks[r].node, b.ranks[r].node);
        assert_int_equal(a.ranks[r].role, b.ranks[r].role);
        assert_non_null(fgets(line, sizeof line, f));
        line[strcspn(line, "\n")] = 0;
        assert_string_equal(line, a.nodes[a.ranks[r].node].host);
    }
    assert_null(fgets(line, sizeof line, f));
    fclose(f);
    layout_fini(&a);
    layout_fini(&b);
    dir_remove(folder, NULL);
}

static void foreign_files_are_refused(void **state)
{
#define NODES "\"nodes\":[{\"host\":\"a\",\"rack\":\"\",\"zone\":\"\"}]"
#define HEAD  "{\"format\":\"exaserve-layout\",\"version\":1,"
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "line"},
        {"{", "line 1"},
        {"[]", "no exaserve-layout"},
        {"{\"format\":\"other\"}", "no exaserve-layout"},
        {"{\"format\":\"exaserve-layout\",\"version\":2}", "version 2"},
        {HEAD "\"nodes\":[]}", "\"nodes\""},
        {HEAD "\"nodes\":[{\"host\":1}]}", "node 0"},
        {HEAD "\"nodes\":[{\"host\":\"a\\u0000b\",\"rack\":\"\",\"zone\":\"\"}]}", "\\u0000"},
        {HEAD NODES "}", "\"ranks\""},
        {HEAD NODES ",\"ranks\":[{\"role\":\"worker\",\"node\":0}]}", "rank 0"},
        {HEAD NODES ",\"ranks\":[{\"role\":\"king\",\"node\":0}]}", "rank 0"},
        {HEAD NODES ",\"ranks\":[{\"role\":\"scheduler\",\"node\":1}]}", "rank 0"},
        {HEAD NODES ",\"ranks\":[{\"role\":\"scheduler\",\"node\":-1}]}", "rank 0"},
        {HEAD NODES
         ",\"ranks\":[{\"role\":\"scheduler\",\"node\":0},{\"role\":\"scheduler\",\"node\":0}]}",
         "rank 1"},
        {HEAD NODES
         ",\"ranks\":[{\"role\":\"scheduler\",\"node\":0},{\"role\":\"worker\",\"node\":0},"
         "{\"role\":\"worker\",\"node\":0}]}",
         "rank 2: node a has a worker"},
    };
    char *folder = temp_folder(), json[128];
    snprintf(json, sizeof json, "%s/layout.json", folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e = ERR_INIT;
        struct layout l;
        assert_int_equal(file_publish(json, rows[i].text, strlen(rows[i].text), 0600, &e), 0);
        assert_int_equal(layout_read(&l, json, &e), ERR_FORMAT);
        if (!strstr(e.text, rows[i].words) || !strstr(e.text, json))
            fail_msg("row %zu: '%s' lacks '%s'", i, e.text, rows[i].words);
    }
    unlink(json);
    struct layout l;
    struct err e = ERR_INIT;
    assert_int_equal(layout_read(&l, json, &e), ERR_SYS);
    assert_non_null(strstr(e.text, "layout.json"));
    dir_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_give_the_designed_counts),
        cmocka_unit_test(control_spreads_over_racks),
        cmocka_unit_test(standbys_prefer_other_zones),
        cmocka_unit_test(dedicated_nodes_have_no_worker),
        cmocka_unit_test(wishes_are_kept),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(same_input_gives_same_output),
        cmocka_unit_test(rack_leader_moves_by_itself),
        cmocka_unit_test(verify_names_the_difference),
        cmocka_unit_test(files_come_back),
        cmocka_unit_test(foreign_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

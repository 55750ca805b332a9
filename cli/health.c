/* health.c - `exaserve health`: ask every router of the service itself, not the files about it. */
#include "cli/commands.h"
#include "cli/http.h"
#include "cli/say.h"
#include "cli/target.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 12, CELL_BYTES = 48, ANSWER_TIMEOUT_MS = 10 * 1000 };

struct answer {
    const char *url;
    long status;  /* 0: none */
    json_t *body; /* NULL: none, or no JSON */
    struct err why;
};

static void ask(struct http *h, struct answer *a, unsigned timeout_ms)
{
    struct buf body;
    buf_init(&body, HTTP_MAX_BODY);
    if (http_get(h, a->url, "/health/ready", timeout_ms, &body, &a->status, &a->why) == 0 &&
        body.len)
        a->body = json_loadb((const char *)body.data, body.len, 0, NULL);
    buf_fini(&body);
}

/* One cell of a table. */
static void cell_text(const json_t *v, char out[CELL_BYTES])
{
    if (json_is_string(v))
        snprintf(out, CELL_BYTES, "%s", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(out, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        snprintf(out, CELL_BYTES, "%.3g", json_real_value(v));
    else if (json_is_boolean(v))
        snprintf(out, CELL_BYTES, "%s", json_is_true(v) ? "yes" : "no");
    else
        snprintf(out, CELL_BYTES, "-");
    say_clean(out);
}

/* A list of flat objects: the keys of the first are the columns, so new facts of a router show up by themselves. */
static void print_table(const char *title, const json_t *rows)
{
    const char *columns[MAX_COLUMNS];
    size_t width[MAX_COLUMNS], n = 0, i;
    const char *key;
    json_t *value, *row;
    char cell[CELL_BYTES];
    json_object_foreach(json_array_get(rows, 0), key, value)
    {
        if (n < MAX_COLUMNS && !json_is_object(value) && !json_is_array(value)) {
            columns[n] = key;
            width[n++] = strlen(key);
        }
    }
    if (!n)
        return;
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < n; c++) {
            cell_text(json_object_get(row, columns[c]), cell);
            if (strlen(cell) > width[c])
                width[c] = strlen(cell);
        }
    }
    printf("%s\n ", title);
    for (size_t c = 0; c < n; c++)
        printf(" %-*s", (int)width[c], columns[c]);
    printf("\n");
    json_array_foreach(rows, i, row)
    {
        printf(" ");
        for (size_t c = 0; c < n; c++) {
            cell_text(json_object_get(row, columns[c]), cell);
            printf(" %-*s", (int)width[c], cell);
        }
        printf("\n");
    }
}

/* Plain facts, then tables. */
static void print_body(const json_t *body)
{
    const char *key;
    json_t *value;
    char cell[CELL_BYTES];
    json_object_foreach((json_t *)body, key, value)
    {
        if (json_is_string(value)) {
            char line[600];
            snprintf(line, sizeof line, "%s", json_string_value(value));
            printf("%-10s %s\n", key, say_clean(line));
        } else if (!json_is_array(value) && !json_is_object(value)) {
            cell_text(value, cell);
            printf("%-10s %s\n", key, cell);
        }
    }
    json_object_foreach((json_t *)body, key, value)
    {
        if (json_is_array(value) && json_array_size(value))
            print_table(key, value);
    }
}

static void print_text(const struct answer *a, size_t n)
{
    const struct answer *best = NULL;
    for (size_t i = 0; i < n; i++) {
        if (a[i].status)
            printf("router     %s: %s (%ld)\n", a[i].url,
                   a[i].status == 200 ? "ready" : "not ready", a[i].status);
        else
            printf("router     %s: does not answer (%s)\n", a[i].url, a[i].why.text);
        if (a[i].body && (!best || (a[i].status == 200 && best->status != 200)))
            best = &a[i];
    }
    if (best) /* routers say the same: one table is enough */
        print_body(best->body);
}

static void print_json(const struct target *t, const struct answer *a, size_t n, bool ready)
{
    json_t *routers = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "url", json_string(a[i].url));
        json_object_set_new(o, "status", json_integer(a[i].status));
        if (a[i].body)
            json_object_set(o, "body", a[i].body);
        if (!a[i].status)
            json_object_set_new(o, "error", json_string(a[i].why.text));
        json_array_append_new(routers, o);
    }
    json_t *all = json_pack("{s:s, s:b, s:o}", "job", t->job, "ready", ready, "routers", routers);
    char *text = json_dumps(all, JSON_INDENT(2));
    puts(text ? text : "{}");
    free(text);
    json_decref(all);
}

static int check(struct target *t, bool json, unsigned timeout_ms, struct err *e)
{
    size_t n = t->endpoint.n_urls;
    struct http h;
    struct answer *a = calloc(n, sizeof *a);
    if (!a)
        return err_set(e, ERR_NOMEM, "out of memory");
    int rc = http_init(&h, t->endpoint.key, e);
    bool ready = false, late = false, silent = true;
    for (size_t i = 0; !rc && i < n; i++) {
        a[i].url = t->endpoint.urls[i];
        ask(&h, &a[i], timeout_ms);
        ready = ready || a[i].status == 200;
        late = late || a[i].why.code == ERR_TIMEOUT;
        silent = silent && a[i].why.code == ERR_PEER;
    }
    if (!rc && json)
        print_json(t, a, n, ready);
    else if (!rc)
        print_text(a, n);
    if (!rc && !ready)
        rc = silent ? target_silent(t, ERR_PEER, e) : ERR_PEER;
    if (rc == ERR_PEER)
        rc = err_set(e, late ? ERR_TIMEOUT : ERR_AGAIN, "job %s is not ready", t->job);
    for (size_t i = 0; i < n; i++)
        json_decref(a[i].body);
    free(a);
    http_fini(&h);
    return rc;
}

static int run(int argc, char **argv)
{
    bool json = false;
    uint64_t timeout_s = 0;
    const struct opt opts[] = {
        {"json", 'j', OPT_FLAG, .value = &json, .help = "one JSON object, for programs"},
        {"timeout", 't', OPT_UINT, "SECONDS", &timeout_s, 1, 3600,
         "how long each router may take to answer (10)"},
        {.name = NULL},
    };
    struct target *t;
    int code = target_of_line(&t, &COMMAND_HEALTH, opts, argc, argv);
    if (code != OPT_GO_ON)
        return code;
    struct err e = ERR_INIT;
    int rc = target_urls(t, &e);
    if (!rc)
        rc = check(t, json, timeout_s ? (unsigned)timeout_s * 1000 : ANSWER_TIMEOUT_MS, &e);
    code = rc ? say_error("health", &e) : EXIT_READY;
    free(t);
    return code;
}

const struct command COMMAND_HEALTH = {
    .name = "health",
    .operands = "[JOB]",
    .max_operands = 1,
    .summary = "ask the routers how nodes and replicas fare",
    .details =
        "Ask every router of the service and show what it says of nodes and replicas. Works on a\n"
        "login node and inside the job: srun --overlap --jobid=JOB exaserve health\n"
        "Exit code 0: at least one router takes requests; 2: none; 3: none, and one did not answer "
        "in\n"
        "time.\n",
    .run = run,
};

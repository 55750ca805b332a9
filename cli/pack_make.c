/* pack_make.c - see pack_make.h. */
#include "cli/pack_make.h"

#include "cli/opt.h"
#include "cli/pack_guard.h"
#include "cli/pack_progress.h"
#include "cli/say.h"
#include "hdf5io/pack.h"
#include "model/import.h"
#include "model/quantize.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_progress(void *ctx, uint64_t done, uint64_t total)
{
    pack_guard_own();
    pack_progress_show(ctx, done, total);
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int check_names(const char *in, const char *out, struct err *e)
{
    if (same_file(in, out))
        return err_set(e, ERR_CONFIG, "%s and %s are the same file", in, out);
    if (access(in, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(e, ERR_CONFIG, "%s: %s", in, strerror(errno));
    return 0;
}

static unsigned cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > 16 ? 16 : (unsigned)n; /* more would wait for one disk */
}

/* --- the report ------------------------------------------------------------------------------------- */

static double relative_error(double error, double square)
{
    return square > 0 ? sqrt(error / square) : 0;
}

enum { MAX_GROUPS = 64 }; /* 12 formats, each becomes itself or one of at most four others */

/* All tensors that went from one format to one other. */
struct group {
    int from, to;
    unsigned n_tensors;
    uint64_t n_weights, before, after;
    double error, square, worst_error;
    const char *worst; /* the tensor with the largest relative error */
};

static void group_add(struct group *g, const struct quantize *q, const struct model_index *from,
                      uint32_t i)
{
    const struct quantize_tensor *t = &q->tensors[i];
    double relative = relative_error(t->error, t->square);
    g->n_tensors++;
    g->n_weights += t->n_weights;
    g->before += from->tensors[i].n_bytes;
    g->after += q->index.tensors[i].n_bytes;
    if (t->from == t->to)
        return;
    g->error += t->error;
    g->square += t->square;
    if (!g->worst || relative > g->worst_error) {
        g->worst = from->tensors[i].name;
        g->worst_error = relative;
    }
}

static void group_print(const struct group *g, const char *from, const char *to)
{
    printf("%-8s %-8s %7u %13" PRIu64 " %10.1f %10.1f", from, to, g->n_tensors, g->n_weights,
           (double)g->before / 1e6, (double)g->after / 1e6);
    if (g->worst)
        printf(" %8.3f %% %9.2e  %s (%.3f %%)", 100 * relative_error(g->error, g->square),
               g->square > 0 ? g->error / g->square : 0, g->worst, 100 * g->worst_error);
    else
        printf("      kept");
    printf("\n");
}

/* Errors are relative: the root of the squared differences' sum over that of the squared weights. NMSE is its square. */
static void report(const struct quantize *q, const struct model_index *from)
{
    struct group groups[MAX_GROUPS] = {0}, all = {0};
    unsigned n_groups = 0;
    for (uint32_t i = 0; i < from->n_tensors; i++) {
        const struct quantize_tensor *t = &q->tensors[i];
        unsigned g = 0;
        while (g < n_groups && (groups[g].from != t->from || groups[g].to != t->to))
            g++;
        if (g == n_groups) {
            CHECK(n_groups < MAX_GROUPS);
            groups[n_groups++] = (struct group){.from = t->from, .to = t->to};
        }
        group_add(&groups[g], q, from, i);
        group_add(&all, q, from, i);
    }
    printf("%-8s %-8s %7s %13s %10s %10s %10s %9s  %s\n", "from", "to", "tensors", "weights",
           "before MB", "after MB", "error", "NMSE", "worst tensor");
    for (unsigned g = 0; g < n_groups; g++)
        group_print(&groups[g], tensor_type_info(groups[g].from)->name,
                    tensor_type_info(groups[g].to)->name);
    group_print(&all, "all", ""); /* sizes of the whole model, errors of what changed */
}

/* What the user may not expect, before the work begins. */
static void notes(const struct quantize *q, const struct model_index *from, int type)
{
    unsigned substitutes = 0, quantised = 0, changed = 0;
    const struct tensor_info *sub = NULL, *old = NULL;
    for (uint32_t i = 0; i < from->n_tensors; i++) {
        const struct quantize_tensor *t = &q->tensors[i];
        changed += t->from != t->to;
        if (t->from != t->to && t->substitute && substitutes++ == 0)
            sub = &q->index.tensors[i];
        if (t->from != t->to && tensor_type_info(t->from)->block_elems > 1 && quantised++ == 0)
            old = &from->tensors[i];
    }
    const char *name = tensor_type_info(type)->name;
    if (!changed)
        fprintf(stderr, "note: no tensor becomes smaller as %s: the model is kept as it is\n",
                name);
    if (sub)
        fprintf(stderr,
                "note: rows of %u tensors are no whole %s blocks: the first is %s (%" PRIu64
                " in a row), kept as %s\n",
                substitutes, name, sub->name, sub->dims[0], tensor_type_info(sub->type)->name);
    if (old)
        fprintf(stderr,
                "note: %u tensors are quantised already (%s is %s): their errors come on top of "
                "those below\n",
                quantised, old->name, tensor_type_info(old->type)->name);
}

/* --- the work ----------------------------------------------------------------------------------------- */

static int write_model(struct import *m, struct quantize *q, const char *out, bool quiet,
                       char hex[SHA256_HEX], struct err *e)
{
    struct model_index *index = q ? &q->index : m->index;
    struct tensor_source source = q ? quantize_source(q) : m->source;
    struct pack_progress p = pack_progress_start(q ? "quantising" : "packing", quiet);
    pack_guard_begin(out);
    int rc = pack_write_from(out, index, m->meta, &source, write_progress, &p, e);
    pack_guard_end();
    hex_encode(index->digest, SHA256_BYTES, hex);
    if (!rc && !quiet)
        fprintf(stderr, "packed %s in %.1f s\n", out, (double)(clock_now_us() - p.start_us) / 1e6);
    return rc;
}

static int make_quantised(struct import *m, const char *out, int type, bool quiet,
                          char hex[SHA256_HEX], struct err *e)
{
    struct quantize q;
    int rc = quantize_open(&q, m->index, &m->source, type, cores(), e);
    if (rc)
        return rc;
    notes(&q, m->index, type);
    rc = write_model(m, &q, out, quiet, hex, e);
    if (!rc)
        report(&q, m->index);
    quantize_close(&q);
    return rc;
}

int pack_make(const char *name, const char *in, const char *out, const char *quantize, bool quiet)
{
    struct err e = ERR_INIT;
    struct import m;
    char hex[SHA256_HEX];
    int type = quantize ? quantize_type(quantize) : -1;
    if (quantize && type < 0)
        err_set(&e, ERR_CONFIG, "--quantize %.32s: expected one of %s", quantize, QUANTIZE_NAMES);
    if (e.code || check_names(in, out, &e) || import_open(&m, in, &e))
        return say_error(name, &e);
    if (!quiet)
        fprintf(stderr, "packing %s (%s, %s): %" PRIu32 " tensors, %.1f MB\n", in, m.kind,
                m.meta->params.arch, m.index->n_tensors, (double)m.index->data_bytes / 1e6);
    int rc = quantize ? make_quantised(&m, out, type, quiet, hex, &e)
                      : write_model(&m, NULL, out, quiet, hex, &e);
    import_close(&m);
    if (rc) {
        int code = say_error(name, &e);
        return rc == ERR_LIMIT ? 1 : code; /* a full disk is no fault of the input */
    }
    printf("%s\n", hex);
    return 0;
}

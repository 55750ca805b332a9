/* pack.c - see pack.h. Results go to standard output, progress and errors to standard error. */
#include "cli/pack.h"

#include "base/clock.h"
#include "cli/opt.h"
#include "cli/pack_guard.h"
#include "cli/say.h"
#include "hdf5io/pack.h"
#include "model/gguf.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PROGRESS_US = 1000000, /* a line a second: readable in a log, too */
};

static const char USAGE[] = "usage: exaserve pack IN.gguf OUT.h5\n"
                            "       exaserve pack --verify PACK\n"
                            "       exaserve pack --list PACK\n";
static const char HELP[] =
    "\n"
    "Make a model pack (HDF5) of a GGUF file. The blocks of quantised tensors are kept as they "
    "are. OUT.h5\n"
    "appears, or is replaced, only when all of it is on the disk.\n"
    "\n"
    "  --verify PACK  read every segment and compare its SHA-256; a bad one is named\n"
    "  --list PACK    print tensors (type, shape, bytes), digest and totals; reads no tensor data\n"
    "  -q, --quiet    no progress lines\n"
    "  -h, --help     this text\n"
    "\n"
    "Exit codes: 0 done, 1 the system refused (disk full, no permission), 4 invalid input.\n";

struct progress {
    const char *verb;
    bool quiet;
    uint64_t start_us, last_us;
};

static void show_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    uint64_t now = clock_now_us();
    if (p->quiet || now - p->last_us < PROGRESS_US)
        return;
    p->last_us = now;
    double s = (double)(now - p->start_us) / 1e6;
    fprintf(stderr, "%s: %3.0f %%, %.0f MB/s\n", p->verb, 100.0 * (double)done / (double)total,
            (double)done / 1e6 / s);
}

static struct progress progress_start(const char *verb, bool quiet)
{
    uint64_t now = clock_now_us();
    return (struct progress){verb, quiet, now, now};
}

static void write_progress(void *ctx, uint64_t done, uint64_t total)
{
    pack_guard_own();
    show_progress(ctx, done, total);
}

/* A name that nothing has is a wrong operand; whatever else the system says of it is the system's. */
static int check_there(const char *path, struct err *e)
{
    if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return 0;
    return err_set(e, ERR_CONFIG, "%s: %s", path, strerror(errno));
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int make_pack(const char *name, const char *in, const char *out, bool quiet)
{
    struct err e = ERR_INIT;
    struct gguf g;
    if (same_file(in, out))
        err_set(&e, ERR_CONFIG, "%s and %s are the same file", in, out);
    if (e.code || check_there(in, &e) || gguf_open(&g, in, &e))
        return say_error(name, &e);
    if (!quiet)
        fprintf(stderr, "packing %s: %" PRIu32 " tensors, %.1f MB\n", in, g.index.n_tensors,
                (double)g.index.data_bytes / 1e6);
    struct progress p = progress_start("packing", quiet);
    pack_guard_begin(out);
    int rc = pack_write(out, &g.index, &g.meta, g.tensor_data, write_progress, &p, &e);
    pack_guard_end();
    char hex[SHA256_HEX];
    hex_encode(g.index.digest, SHA256_BYTES, hex);
    gguf_close(&g);
    if (rc) {
        int code = say_error(name, &e);
        return rc == ERR_LIMIT ? 1 : code; /* a full disk is no fault of the input */
    }
    if (!quiet)
        fprintf(stderr, "packed %s in %.1f s\n", out, (double)(clock_now_us() - p.start_us) / 1e6);
    printf("%s\n", hex);
    return 0;
}

static int verify_pack(const char *name, const char *path, bool quiet)
{
    struct err e = ERR_INIT;
    struct progress p = progress_start("verifying", quiet);
    int rc = check_there(path, &e);
    if (!rc)
        rc = pack_verify(path, show_progress, &p, &e);
    if (rc)
        return say_error(name, &e);
    printf("%s: every hash agrees\n", path);
    return 0;
}

/* "[576, 1536]", innermost first as in GGUF */
static void shape_text(const struct tensor_info *t, char *out, size_t cap)
{
    size_t n = 0;
    for (uint32_t i = 0; i < t->n_dims && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%" PRIu64, i ? ", " : "[", t->dims[i]);
    if (n < cap)
        snprintf(out + n, cap - n, "]");
}

static int list_pack(const char *name, const char *path)
{
    struct err e = ERR_INIT;
    struct pack p;
    struct model_meta m;
    int rc = check_there(path, &e);
    if (!rc)
        rc = pack_open(&p, path, &e);
    if (rc)
        return say_error(name, &e);
    rc = meta_decode(&m, p.meta_bytes, p.meta_n_bytes, &e);
    if (rc) {
        pack_close(&p);
        return say_error(name, &e);
    }
    for (uint32_t i = 0; i < p.index.n_tensors; i++) {
        const struct tensor_info *t = &p.index.tensors[i];
        char shape[96];
        shape_text(t, shape, sizeof shape);
        printf("%-40s %-5s %-18s %12" PRIu64 " bytes at %" PRIu64 "\n", t->name,
               tensor_type_info(t->type)->name, shape, t->n_bytes, p.file_offset[i]);
    }
    char hex[SHA256_HEX];
    hex_encode(p.index.digest, SHA256_BYTES, hex);
    printf("\nmodel   %s (%s, %" PRIu32 " layers, width %" PRIu32 ", vocabulary %" PRIu32
           ", context %" PRIu32 ")\n",
           m.name, m.params.arch, m.params.n_layers, m.params.n_embd, m.params.n_vocab,
           m.params.n_ctx);
    printf("total   %" PRIu32 " tensors, %" PRIu64 " bytes, %" PRIu32 " segments\n",
           p.index.n_tensors, p.index.data_bytes, p.index.n_segments);
    printf("digest  %s\n", hex);
    meta_fini(&m);
    pack_close(&p);
    return 0;
}

static int usage_error(const char *name, const char *what)
{
    fprintf(stderr, "exaserve %s: %s\n%s", name, what, USAGE);
    return EXIT_INVALID;
}

int cmd_pack(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"verify", no_argument, NULL, 'v'},
        {"list", no_argument, NULL, 'l'},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool verify = false, list = false, quiet = false;
    optind = 0; /* a sub-command: whoever came before may have used getopt */
    opterr = 0;
    for (int o; (o = getopt_long(argc, argv, "qh", OPTIONS, NULL)) != -1;) {
        switch (o) {
        case 'v':
            verify = true;
            break;
        case 'l':
            list = true;
            break;
        case 'q':
            quiet = true;
            break;
        case 'h':
            printf("%s%s", USAGE, HELP);
            return 0;
        default: {
            char what[128];
            snprintf(what, sizeof what, "unknown option %.100s", argv[optind - 1]);
            return usage_error(argv[0], what);
        }
        }
    }
    int n = argc - optind;
    if (verify && list)
        return usage_error(argv[0], "--verify and --list exclude each other");
    if (n != (verify || list ? 1 : 2))
        return usage_error(argv[0],
                           verify || list ? "expected one pack" : "expected IN.gguf and OUT.h5");
    int rc = verify ? verify_pack(argv[0], argv[optind], quiet)
             : list ? list_pack(argv[0], argv[optind])
                    : make_pack(argv[0], argv[optind], argv[optind + 1], quiet);
    if (rc == 0 && fflush(stdout) != 0) {
        fprintf(stderr, "exaserve %s: cannot write the result: %s\n", argv[0], strerror(errno));
        rc = 1;
    }
    return rc;
}

/* pack.c - see pack.h. Results go to standard output, progress and errors to standard error. */
#include "cli/pack.h"

#include "cli/opt.h"
#include "cli/pack_make.h"
#include "cli/pack_progress.h"
#include "cli/say.h"
#include "hdf5io/pack.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char USAGE[] = "usage: exaserve pack [--quantize FORMAT] IN OUT.h5\n"
                            "       exaserve pack --verify PACK\n"
                            "       exaserve pack --list PACK\n";
static const char HELP[] =
    "\n"
    "Make a model pack (HDF5) of IN: a GGUF file, or a Hugging Face folder (config.json, "
    "tokenizer.json,\n"
    "model.safetensors or its shards). The weights are kept as they are unless --quantize makes "
    "them "
    "smaller.\n"
    "What the model asks for and no engine here follows is refused by its name, before the weights "
    "are read.\n"
    "OUT.h5 appears, or is replaced, only when all of it is on the disk.\n"
    "\n"
    "  --quantize FORMAT  one of F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0, "
    "F8_E4M3; "
    "prints the\n"
    "                     error it brings. Norms, biases and routers stay as they are; the "
    "embedding and the\n"
    "                     output become Q8_0 at least. Rows that no block fits get the next larger "
    "format.\n"
    "  --verify PACK      read every segment and compare its SHA-256; a bad one is named\n"
    "  --list PACK        print tensors (type, shape, bytes), digest and totals; reads no tensor "
    "data\n"
    "  -q, --quiet        no progress lines\n"
    "  -h, --help         this text\n"
    "\n"
    "Exit codes: 0 done, 1 the system refused (disk full, no permission), 4 invalid input.\n";

/* A name that nothing has is a wrong operand; whatever else the system says of it is the system's. */
static int check_there(const char *path, struct err *e)
{
    if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return 0;
    return err_set(e, ERR_CONFIG, "%s: %s", path, strerror(errno));
}

static int verify_pack(const char *name, const char *path, bool quiet)
{
    struct err e = ERR_INIT;
    struct pack_progress p = pack_progress_start("verifying", quiet);
    int rc = check_there(path, &e);
    if (!rc)
        rc = pack_verify(path, pack_progress_show, &p, &e);
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
        {"quantize", required_argument, NULL, 'z'}, {"verify", no_argument, NULL, 'v'},
        {"list", no_argument, NULL, 'l'},           {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    const char *quantize = NULL;
    bool verify = false, list = false, quiet = false;
    optind = 0; /* a sub-command: whoever came before may have used getopt */
    opterr = 0;
    for (int o; (o = getopt_long(argc, argv, ":qh", OPTIONS, NULL)) != -1;) {
        switch (o) {
        case 'z':
            quantize = optarg;
            break;
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
            snprintf(what, sizeof what,
                     o == ':' ? "%.100s needs a format" : "unknown option %.100s",
                     argv[optind - 1]);
            return usage_error(argv[0], what);
        }
        }
    }
    int n = argc - optind;
    if (verify && list)
        return usage_error(argv[0], "--verify and --list exclude each other");
    if (quantize && (verify || list))
        return usage_error(argv[0], "--quantize is for making a pack");
    if (n != (verify || list ? 1 : 2))
        return usage_error(argv[0],
                           verify || list ? "expected one pack" : "expected IN and OUT.h5");
    int rc = verify ? verify_pack(argv[0], argv[optind], quiet)
             : list ? list_pack(argv[0], argv[optind])
                    : pack_make(argv[0], argv[optind], argv[optind + 1], quantize, quiet);
    if (rc == 0 && fflush(stdout) != 0) {
        fprintf(stderr, "exaserve %s: cannot write the result: %s\n", argv[0], strerror(errno));
        rc = 1;
    }
    return rc;
}

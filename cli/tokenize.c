/* tokenize.c - see tokenize.h. Text on standard input, a JSON array of ids on standard output. */
#include "cli/tokenize.h"

#include "cli/opt.h"
#include "cli/say.h"
#include "hdf5io/pack.h"
#include "model/meta.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXT_MAX_BYTES = 64 << 20,
    READ_STEP_BYTES = 64 << 10,
};

static const char USAGE[] = "usage: exaserve tokenize PACK [--special] < TEXT\n";
static const char HELP[] =
    "\n"
    "Print the token ids of the text on standard input as a JSON array.\n"
    "\n"
    "  --special   control tokens written in the text, such as <|im_start|>, are recognised;\n"
    "              without it they are ordinary text, as in what users write\n"
    "  -h, --help  this text\n"
    "\n"
    "Exit codes: 0 done, 1 the system refused, 4 invalid input.\n";

static int read_text(struct buf *b, struct err *e)
{
    for (;;) {
        void *dst = buf_reserve(b, READ_STEP_BYTES);
        if (!dst)
            return err_set(e, ERR_LIMIT, "standard input: the text is larger than %zu bytes",
                           b->max - READ_STEP_BYTES);
        ssize_t k = read(STDIN_FILENO, dst, READ_STEP_BYTES);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(e, errno, "cannot read standard input");
        if (k == 0)
            return 0;
        b->len += (size_t)k;
    }
}

static int load_tokenizer(struct tokenizer **t, const char *path, struct err *e)
{
    struct pack p;
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(e, ERR_CONFIG, "%s: %s", path, strerror(errno)); /* a wrong operand */
    int rc = pack_open(&p, path, e);
    if (rc)
        return rc;
    struct model_meta m;
    rc = meta_decode(&m, p.meta_bytes, p.meta_n_bytes, e);
    if (!rc) {
        rc = tokenizer_create(t, &m.tok, e);
        meta_fini(&m);
    }
    pack_close(&p);
    return rc;
}

static void print_ids(const struct token_vec *v)
{
    putchar('[');
    for (size_t i = 0; i < v->n; i++)
        printf("%s%" PRIu32, i ? ", " : "", v->ids[i]);
    puts("]");
}

static int tokenize(const char *name, const char *path, bool special)
{
    struct err e = ERR_INIT;
    struct tokenizer *t = NULL;
    struct token_vec ids = {0};
    struct buf text;
    buf_init(&text, TEXT_MAX_BYTES + READ_STEP_BYTES);
    int rc = load_tokenizer(&t, path, &e);
    if (!rc)
        rc = read_text(&text, &e);
    if (!rc)
        rc = tokenizer_encode(t, text.data ? (const char *)text.data : "", text.len, special,
                              SIZE_MAX, &ids, &e);
    if (!rc) {
        print_ids(&ids);
        if (fflush(stdout) != 0)
            rc = err_sys(&e, errno, "cannot write the result");
    }
    token_vec_fini(&ids);
    tokenizer_destroy(t);
    buf_fini(&text);
    return rc ? say_error(name, &e) : 0;
}

int cmd_tokenize(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"special", no_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool special = false;
    optind = 0; /* a sub-command: whoever came before may have used getopt */
    opterr = 0;
    for (int o; (o = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1;) {
        switch (o) {
        case 's':
            special = true;
            break;
        case 'h':
            printf("%s%s", USAGE, HELP);
            return 0;
        default:
            fprintf(stderr, "exaserve %s: unknown option %s\n%s", argv[0], argv[optind - 1], USAGE);
            return EXIT_INVALID;
        }
    }
    if (argc - optind != 1) {
        fprintf(stderr, "exaserve %s: expected one pack\n%s", argv[0], USAGE);
        return EXIT_INVALID;
    }
    return tokenize(argv[0], argv[optind], special);
}

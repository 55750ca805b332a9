/* opt.c - see opt.h. Strict: an unknown option, a value that is no number or out of range, or a surplus operand is an error. */
#include "cli/opt.h"

#include "config/nearest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 26 };

static const struct opt HELP_OPT = {
    .name = "help", .letter = 'h', .kind = OPT_FLAG, .help = "this text"};

static int wrong(const struct command *c, const char *what, const char *which)
{
    fprintf(stderr, "exaserve %s: %s %s (see exaserve %s --help)\n", c->name, what, which, c->name);
    return EXIT_INVALID;
}

static int unknown_option(const struct command *c, const struct opt *opts, const char *arg,
                          size_t n)
{
    char typed[80];
    struct nearest best = {NULL, 0};
    snprintf(typed, sizeof typed, "%.*s", (int)n, arg);
    const char *name = typed + strspn(typed, "-");
    for (const struct opt *o = opts; o->name; o++)
        nearest_try(&best, name, o->name);
    nearest_try(&best, name, HELP_OPT.name);
    if (best.word)
        fprintf(stderr, "exaserve %s: unknown option %s; did you mean --%s?\n", c->name, typed,
                best.word);
    else
        wrong(c, "unknown option", typed);
    return EXIT_INVALID;
}

/* "--name", "--name=value", "-l", "-lvalue": the option, and its value if it is in the same word. */
static const struct opt *option_of(const struct opt *opts, const char *arg, size_t *n,
                                   const char **value)
{
    bool is_long = arg[1] == '-';
    const char *name = arg + (is_long ? 2 : 1);
    *n = is_long ? strcspn(arg, "=") : 2;
    *value = arg[*n] == 0 ? NULL : arg + *n + (is_long ? 1 : 0);
    size_t len = *n - (is_long ? 2 : 1);
    for (const struct opt *o = opts;; o++) {
        const struct opt *x = o->name ? o : &HELP_OPT;
        if (is_long ? strlen(x->name) == len && strncmp(x->name, name, len) == 0
                    : x->letter && x->letter == *name)
            return x;
        if (!o->name)
            return NULL;
    }
}

static int value_set(const struct command *c, const struct opt *o, const char *text)
{
    char *end;
    errno = 0;
    if (o->kind == OPT_TEXT) {
        *(const char **)o->value = text;
        return OPT_GO_ON;
    }
    if (o->kind == OPT_UINT) {
        uint64_t v = strtoull(text, &end, 10);
        if (*text >= '0' && *text <= '9' && !*end && !errno && v >= o->min && v <= o->max) {
            *(uint64_t *)o->value = v;
            return OPT_GO_ON;
        }
        fprintf(stderr,
                "exaserve %s: --%s must be a whole number from %" PRIu64 " to %" PRIu64
                ", and is \"%.40s\"\n",
                c->name, o->name, o->min, o->max, text);
        return EXIT_INVALID;
    }
    double v = strtod(text, &end);
    if (*text && !*end && isfinite(v) && v >= (double)o->min && v <= (double)o->max) {
        *(double *)o->value = v;
        return OPT_GO_ON;
    }
    fprintf(stderr,
            "exaserve %s: --%s must be a number from %" PRIu64 " to %" PRIu64
            ", and is \"%.40s\"\n",
            c->name, o->name, o->min, o->max, text);
    return EXIT_INVALID;
}

static int option_take(const struct command *c, const struct opt *opts, int argc, char **argv,
                       int *i)
{
    size_t n;
    const char *value;
    const struct opt *o = option_of(opts, argv[*i], &n, &value);
    if (!o)
        return unknown_option(c, opts, argv[*i], n);
    if (o == &HELP_OPT) {
        opt_help(c, opts);
        return EXIT_READY;
    }
    if (o->kind == OPT_FLAG) {
        if (value)
            return wrong(c, "no value belongs to option", argv[*i]);
        *(bool *)o->value = true;
        return OPT_GO_ON;
    }
    if (!value && *i + 1 >= argc)
        return wrong(c, "a value must follow option", argv[*i]);
    return value_set(c, o, value ? value : argv[++*i]);
}

int opt_parse(const struct command *c, const struct opt *opts, int argc, char **argv,
              const char *operands[OPT_MAX_OPERANDS])
{
    unsigned n = 0;
    bool options_end = false;
    for (int i = 0; i < OPT_MAX_OPERANDS; i++)
        operands[i] = NULL;
    for (int i = 1; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1]) {
            int rc = option_take(c, opts, argc, argv, &i);
            if (rc != OPT_GO_ON)
                return rc;
        } else if (n == c->max_operands) {
            return wrong(c, "one operand too many:", argv[i]);
        } else {
            operands[n++] = argv[i];
        }
    }
    return n < c->min_operands ? wrong(c, "missing:", c->operands) : OPT_GO_ON;
}

static void help_line(const struct opt *o)
{
    char left[64];
    snprintf(left, sizeof left, "  %c%c%s--%s%s%s", o->letter ? '-' : ' ',
             o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
             o->kind == OPT_FLAG ? "" : " ", o->kind == OPT_FLAG ? "" : o->arg);
    if (strlen(left) >= HELP_COLUMN)
        printf("%s\n%*s%s\n", left, HELP_COLUMN, "", o->help);
    else
        printf("%-*s%s\n", HELP_COLUMN, left, o->help);
}

void opt_help(const struct command *c, const struct opt *opts)
{
    printf("usage: exaserve %s%s%s%s\n\n%s", c->name, opts->name ? " [OPTION …]" : "",
           *c->operands ? " " : "", c->operands, c->details);
    printf("\nOptions:\n");
    for (const struct opt *o = opts; o->name; o++)
        help_line(o);
    help_line(&HELP_OPT);
}

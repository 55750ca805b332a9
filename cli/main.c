/* main.c - the exaserve command: picks the sub-command. */
#include "base/version.h"
#include "cli/commands.h"
#include "cli/pack.h"
#include "cli/tokenize.h"
#include "config/nearest.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* These two parse their own lines. */
static const struct command COMMAND_PACK = {
    .name = "pack",
    .summary = "make a model pack of a GGUF file, verify or list one",
    .run = cmd_pack};
static const struct command COMMAND_TOKENIZE = {
    .name = "tokenize", .summary = "token ids of the text on standard input", .run = cmd_tokenize};

static const struct command *const COMMANDS[] = {
    &COMMAND_SUBMIT, &COMMAND_STATUS, &COMMAND_URL,  &COMMAND_HEALTH,   &COMMAND_CHAT,
    &COMMAND_STOP,   &COMMAND_RUN,    &COMMAND_PACK, &COMMAND_TOKENIZE, &COMMAND_BENCH,
};
enum { N_COMMANDS = sizeof COMMANDS / sizeof COMMANDS[0] };

static void help(FILE *to)
{
    fprintf(to, "usage: exaserve COMMAND [OPTION …] [OPERAND …]\n\n"
                "Serve a language model on the nodes of a Slurm job, or on this machine.\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", COMMANDS[i]->name, COMMANDS[i]->summary);
    fprintf(to,
            "\n"
            "exaserve COMMAND --help tells more. JOB is a job id; without it the newest job of\n"
            "yours is meant (inside a job: that one).\n\n"
            "First steps:  exaserve run MODEL.gguf             on this machine, no Slurm\n"
            "              exaserve pack MODEL.gguf model.h5\n"
            "              exaserve submit serve.yaml --wait   as a Slurm job\n"
            "              exaserve chat\n\n"
            "Exit codes: 0 done or ready, 1 the system failed, 2 not ready, 3 timed out,\n"
            "4 wrong command line, configuration or input.\n");
}

static const struct command *command_find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(name, COMMANDS[i]->name) == 0)
            return COMMANDS[i];
    return NULL;
}

static int unknown(const char *name)
{
    struct nearest best = {NULL, 0};
    for (int i = 0; i < N_COMMANDS; i++)
        nearest_try(&best, name, COMMANDS[i]->name);
    nearest_try(&best, name, "--help");
    nearest_try(&best, name, "--version");
    fprintf(stderr, "exaserve: unknown command %.60s%s%s%s\n", name,
            best.word ? "; did you mean " : " (see exaserve --help)", best.word ? best.word : "",
            best.word ? "?" : "");
    return EXIT_INVALID;
}

static int dispatch(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!*name) {
        help(stderr);
        return EXIT_INVALID;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("exaserve %s\n", EXASERVE_VERSION);
        return EXIT_READY;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        (strcmp(name, "help") == 0 && argc == 2)) {
        help(stdout);
        return EXIT_READY;
    }
    if (strcmp(name, "help") == 0) { /* exaserve help chat */
        static char ask[] = "--help";
        const struct command *c = command_find(argv[2]);
        return c ? c->run(2, (char *[]){argv[2], ask, NULL}) : unknown(argv[2]);
    }
    const struct command *c = command_find(name);
    if (!c)
        return unknown(name);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int rc = c->run(argc - 1, argv + 1);
    curl_global_cleanup();
    return rc;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    int rc = dispatch(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return rc;
    /* a full disk behind a redirection must not look like success */
    fprintf(stderr, "exaserve: cannot write to standard output\n");
    return rc == EXIT_READY ? 1 : rc;
}

/* main.c - exaserved: every rank of the world runs this program; its role follows from its rank and the layout. */
#include "base/err.h"
#include "base/version.h"
#include "ranks/plan.h"
#include "ranks/start.h"
#include "slurm/rundir.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: exaserved --world --run-dir DIR [--attempt N]\n"
    "       exaserved --probe\n"
    "       exaserved --prepare --config FILE.yaml --run-dir DIR\n"
    "       exaserved --plan --config FILE.yaml --run-dir DIR [--attempt N] --nodes-file FILE "
    "[--exclude HOST,HOST]\n"
    "\n"
    "The daemon of ExaServe. People use `exaserve`; jobs/serve.sbatch and `exaserve run` call this "
    "program.\n"
    "\n"
    "  --world        be one rank of the MPI world (started by srun or mpirun)\n"
    "  --probe        print this node's host, rack and zone in one line, for --plan\n"
    "  --prepare      check the configuration; make the run directory with secret and key\n"
    "  --plan         lay out the roles over the nodes: writes DIR/attempt-N/{layout.json,hosts}, "
    "prints ranks and nodes\n"
    "  --config FILE  the service's configuration\n"
    "  --run-dir DIR  the service's run directory, on a file system that all nodes share\n"
    "  --attempt N    which start of the world this is (default 1)\n"
    "  --nodes-file F lines \"host rack zone\" (\"-\": none), as --probe prints them\n"
    "  --exclude H,H  nodes to leave out\n"
    "  --version      print the version\n"
    "  --help         print this text\n"
    "\n"
    "exit status: 0 ended well, 4 wrong configuration or command line, 75 the world died while it "
    "started, 1 else\n";

enum mode { MODE_NONE, MODE_WORLD, MODE_PROBE, MODE_PREPARE, MODE_PLAN };

struct arguments {
    enum mode mode;
    const char *config, *run_dir, *nodes_file, *exclude;
    uint32_t attempt;
};

static int usage_error(const char *text)
{
    fprintf(stderr, "exaserved: %s (see exaserved --help)\n", text);
    return err_exit_code(ERR_CONFIG);
}

static int run_mode(const struct arguments *a, int *argc, char ***argv)
{
    struct err e = ERR_INIT;
    int rc = 0;
    if (a->mode == MODE_NONE)
        return usage_error("one of --world, --probe, --prepare, --plan is needed");
    if (a->mode != MODE_PROBE && !a->run_dir)
        return usage_error("--run-dir is needed");
    if ((a->mode == MODE_PREPARE || a->mode == MODE_PLAN) && !a->config)
        return usage_error("--config is needed");
    if (a->mode == MODE_PLAN && !a->nodes_file)
        return usage_error("--nodes-file is needed");
    if (a->mode == MODE_WORLD)
        rank_run(a->run_dir, a->attempt, argc, argv);
    if (a->mode == MODE_PROBE)
        rc = plan_probe(&e);
    else if (a->mode == MODE_PREPARE)
        rc = plan_prepare(a->config, a->run_dir, &e);
    else
        rc = plan_make(a->config, a->run_dir, a->attempt, a->nodes_file, a->exclude, &e);
    if (rc)
        fprintf(stderr, "exaserved: %s\n", e.text);
    return rc ? err_exit_code(rc) : 0;
}

int main(int argc, char **argv)
{
    enum {
        OPT_CONFIG = 256,
        OPT_RUN_DIR,
        OPT_ATTEMPT,
        OPT_NODES,
        OPT_EXCLUDE,
        OPT_VERSION,
        OPT_HELP
    };
    struct arguments a = {.attempt = 1};
    int mode = MODE_NONE;
    const struct option options[] = {{"world", no_argument, &mode, MODE_WORLD},
                                     {"probe", no_argument, &mode, MODE_PROBE},
                                     {"prepare", no_argument, &mode, MODE_PREPARE},
                                     {"plan", no_argument, &mode, MODE_PLAN},
                                     {"config", required_argument, NULL, OPT_CONFIG},
                                     {"run-dir", required_argument, NULL, OPT_RUN_DIR},
                                     {"attempt", required_argument, NULL, OPT_ATTEMPT},
                                     {"nodes-file", required_argument, NULL, OPT_NODES},
                                     {"exclude", required_argument, NULL, OPT_EXCLUDE},
                                     {"version", no_argument, NULL, OPT_VERSION},
                                     {"help", no_argument, NULL, OPT_HELP},
                                     {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 0:
            break;
        case OPT_CONFIG:
            a.config = optarg;
            break;
        case OPT_RUN_DIR:
            a.run_dir = optarg;
            break;
        case OPT_ATTEMPT:
            a.attempt = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case OPT_NODES:
            a.nodes_file = optarg;
            break;
        case OPT_EXCLUDE:
            a.exclude = optarg;
            break;
        case OPT_VERSION:
            puts("exaserved " EXASERVE_VERSION);
            return 0;
        case OPT_HELP:
            fputs(USAGE, stdout);
            return 0;
        default:
            return err_exit_code(ERR_CONFIG);
        }
    }
    if (optind < argc)
        return usage_error("unexpected argument");
    a.mode = (enum mode)mode;
    return run_mode(&a, &argc, &argv);
}

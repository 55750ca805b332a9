/* options.c - see options.h: the table itself and the checks of single values. */
#include "config/options.h"

#include "config/walltime.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *check_name(const char *v)
{
    static const char *const WANT =
        "letters, digits, '.', '_' or '-', beginning with a letter or digit";
    if (!isalnum((unsigned char)v[0]))
        return WANT;
    for (; *v; v++)
        if (!isalnum((unsigned char)*v) && !strchr("._-", *v))
            return WANT;
    return NULL;
}

static const char *check_word(const char *v)
{
    for (; *v; v++)
        if ((unsigned char)*v <= ' ' || *v == 0x7f)
            return "a word without spaces";
    return NULL;
}

/* Text of one line: it becomes an argument or a file name. */
static const char *check_line(const char *v)
{
    for (; *v; v++)
        if ((unsigned char)*v < ' ' || *v == 0x7f)
            return "text without control characters";
    return NULL;
}

static const char *check_time(const char *v)
{
    uint64_t s;
    return walltime_parse(v, &s) ? NULL
                                 : "a Slurm time such as 30, 1:00:00 or 2-12 (minutes, "
                                   "hours:minutes:seconds, days-hours)";
}

static const char *check_address(const char *v)
{
    unsigned char a[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, v, a) == 1 || inet_pton(AF_INET6, v, a) == 1
               ? NULL
               : "an IP address such as 0.0.0.0 or 127.0.0.1";
}

/* What would make sbatch do something else than start this one job, or hide the job id. */
static const char *check_sbatch_arg(const char *v)
{
    static const char *const REFUSED[] = {"--wrap",      "--array", "--parsable", "--wait",
                                          "--test-only", "--help",  "--usage",    "--version"};
    if (v[0] != '-' || v[1] == 0)
        return "an option of sbatch, written --option=value";
    if (check_line(v))
        return check_line(v);
    size_t n = strcspn(v, "=");
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++)
        if (n == strlen(REFUSED[i]) && strncmp(v, REFUSED[i], n) == 0)
            return "an option that starts one ordinary job (not --wrap, --array, --parsable, "
                   "--wait, --test-only)";
    if (v[1] != '-' && strchr("aWhV", v[1]))
        return "an option that starts one ordinary job (not -a, -W, -h, -V)";
    return NULL;
}

static const char *check_fraction(const char *v)
{
    static const char *const WANT = "a number from 0.01 to 1, such as 0.8";
    char *end = NULL;
    if (!isdigit((unsigned char)v[0]) || strspn(v, "0123456789.") != strlen(v))
        return WANT;
    double x = strtod(v, &end);
    return *end == 0 && x >= 0.01 && x <= 1 ? NULL : WANT;
}

static const char *const FILL[] = {"fill", NULL};
static const char *const ENGINES[] = {"cpu", NULL};
static const char *const KV_TYPES[] = {"f16", "f32", "q8", NULL};
static const char *const SPECULATIONS[] = {"off", "lookup", "draft", NULL};
static const char *const CONTROLS[] = {
    [CONTROL_SHARED] = "shared", [CONTROL_DEDICATED] = "dedicated", NULL};

#define AT(field)                                                                                  \
    .offset = offsetof(struct config, field), .size = sizeof(((struct config *)0)->field)
#define MODEL(field)                                                                               \
    .offset = offsetof(struct config_model, field),                                                \
    .size = sizeof(((struct config_model *)0)->field)
#define LIST(field)      AT(field), .count_offset = offsetof(struct config, field##_count)
#define RANGE(lo, hi, d) .min = (lo), .max = (hi), .preset = (d)

static const struct option OPTIONS[] = {
    {"name", OPTION_STRING, AT(name), .min = 1, .max = 63, .preset_text = "exaserve",
     .check = check_name, .help = "Name of the service and of its Slurm job."},
    {"models", OPTION_MODELS, LIST(models), .required = true, .min = 1, .max = CONFIG_MAX_MODELS,
     .help = "The models to serve: a list with exactly one entry for now."},
    {"models[].name", OPTION_STRING, MODEL(name), .min = 1, .max = 127, .check = check_word,
     .help = "Model name as clients write it; without it, the name in the pack."},
    {"models[].pack", OPTION_STRING, MODEL(pack), .required = true, .min = 1, .max = 1000,
     .check = check_line,
     .help = "Path of the pack (.h5, made by `exaserve pack`) on a file system that all nodes "
             "share; a relative path is taken from the folder of this file."},
    {"models[].replicas", OPTION_COUNT, MODEL(replicas), RANGE(1, 100000, 0), .words = FILL,
     .help = "How many replicas to run in all; `fill`: one on every serving node."},
    {"models[].min_replicas", OPTION_UINT, MODEL(min_replicas), RANGE(0, 100000, 0),
     .help = "With this many replicas the service may start DEGRADED at the start deadline; "
             "0: all but 5 %."},
    {"models[].engine", OPTION_STRING, MODEL(engine), .min = 1, .max = 31, .preset_text = "cpu",
     .words = ENGINES, .help = "Which engine computes the model."},
    {"models[].context", OPTION_UINT, MODEL(context), RANGE(0, 1 << 20, 0), .unit = "tokens",
     .help = "Longest prompt and answer together; 0: the model's own, at most 4096."},
    {"models[].slots", OPTION_UINT, MODEL(slots), RANGE(1, 256, 8),
     .help = "Requests that one replica computes at once."},
    {"models[].threads", OPTION_UINT, MODEL(threads), RANGE(0, 1024, 0),
     .help = "Compute threads of one replica; 0: its share of the node's cores."},
    {"models[].tensor_parallel", OPTION_UINT, MODEL(tensor_parallel), RANGE(1, 16, 1),
     .help = "Engines that share each layer of one replica; heads and feed-forward width must "
             "divide by it (docs/internals/shards.md)."},
    {"models[].pipeline_parallel", OPTION_UINT, MODEL(pipeline_parallel), RANGE(1, 16, 1),
     .help = "Stages that the layers of one replica are divided into; with tensor_parallel at most "
             "16 engines in all."},
    {"models[].shards_per_node", OPTION_UINT, MODEL(shards_per_node), RANGE(0, 16, 0),
     .help =
         "Engines of one replica on one node, at most; 0: all of them on one node. Over several "
         "nodes they talk through the workers, which is slower."},
    {"models[].kv_type", OPTION_STRING, MODEL(kv_type), .min = 1, .max = 7, .preset_text = "f16",
     .words = KV_TYPES,
     .help = "Format of keys and values; `q8` holds twice as many tokens as `f16`, and changes "
             "answers a little."},
    {"models[].memory_fraction", OPTION_STRING, MODEL(memory_fraction), .min = 1, .max = 15,
     .check = check_fraction,
     .help =
         "Of the node's available memory, shared by its engines, so much is for their keys, "
         "values and scratch; without it, what all slots need at full context, at most half of the "
         "memory."},
    {"models[].token_budget", OPTION_UINT, MODEL(token_budget), RANGE(0, 4096, 0), .unit = "tokens",
     .help =
         "Tokens that one step computes: one for each stream, the rest for prompts. More is faster "
         "for prompts and slower for the streams beside them; 0: 128."},
    {"models[].queue", OPTION_UINT, MODEL(queue), RANGE(0, 4096, 32),
     .help = "Requests that may wait in a replica for a slot or for memory, beside those that it "
             "computes."},
    {"models[].prefix_cache", OPTION_BOOL, MODEL(prefix_cache), .preset = true,
     .help = "Keep keys and values of earlier requests for those that begin alike."},
    {"models[].speculation", OPTION_STRING, MODEL(speculation), .min = 1, .max = 7,
     .preset_text = "off", .words = SPECULATIONS,
     .help = "Guess several tokens at once, from the text itself (`lookup`) or by a small model "
             "(`draft`); answers stay the same."},
    {"models[].draft", OPTION_STRING, MODEL(draft), .min = 1, .max = 400, .check = check_line,
     .help =
         "With `speculation: draft`: the small model's node image, which must lie at this path on "
         "every node."},
    {"models[].step_timeout", OPTION_UINT, MODEL(step_timeout_s), RANGE(1, 3600, 60), .unit = "s",
     .help = "An engine that has requests and makes no step for so long is killed and started "
             "again; its requests end with an error."},
    {"slurm", OPTION_GROUP, .help = "What is asked of Slurm."},
    {"slurm.nodes", OPTION_UINT, AT(nodes), RANGE(1, 4096, 1), .help = "Nodes of the job."},
    {"slurm.time", OPTION_STRING, AT(time), .min = 1, .max = 32, .check = check_time,
     .help = "Time limit in Slurm's notation; without it, the partition's own."},
    {"slurm.partition", OPTION_STRING, AT(partition), .min = 1, .max = 255, .check = check_word,
     .help = "Partition (`sbatch --partition`)."},
    {"slurm.account", OPTION_STRING, AT(account), .min = 1, .max = 255, .check = check_word,
     .help = "Account to charge (`sbatch --account`)."},
    {"slurm.qos", OPTION_STRING, AT(qos), .min = 1, .max = 255, .check = check_word,
     .help = "Quality of service (`sbatch --qos`)."},
    {"slurm.reservation", OPTION_STRING, AT(reservation), .min = 1, .max = 255, .check = check_word,
     .help = "Reservation (`sbatch --reservation`)."},
    {"slurm.constraint", OPTION_STRING, AT(constraint), .min = 1, .max = 255, .check = check_word,
     .help = "Features that nodes must have (`sbatch --constraint`)."},
    {"slurm.exclusive", OPTION_BOOL, AT(exclusive), .preset = true,
     .help = "Ask for whole nodes (`sbatch --exclusive`)."},
    {"slurm.sbatch_args", OPTION_LIST, LIST(sbatch_args), .min = 0, .max = 64,
     .check = check_sbatch_arg, .help = "Further options for sbatch, one a list item."},
    {"control", OPTION_CHOICE, AT(control), .preset = CONTROL_SHARED, .words = CONTROLS,
     .help = "`shared`: scheduler and routers run beside engines; `dedicated`: on nodes of "
             "their own."},
    {"routers", OPTION_UINT, AT(routers), RANGE(0, 64, 0),
     .help = "HTTP front ends; 0: by size (one on one node, two from two nodes on, one more "
             "for each 64 nodes)."},
    {"standbys", OPTION_BOOL, AT(standbys), .preset = true,
     .help = "Lay out standby schedulers (from three nodes on)."},
    {"port", OPTION_UINT, AT(port), RANGE(0, 65535, 0),
     .help = "TCP port of every router (each has a node of its own); 0: any free one, shown by "
             "`exaserve url`."},
    {"listen", OPTION_STRING, AT(listen), .min = 1, .max = 45, .preset_text = "0.0.0.0",
     .check = check_address, .help = "Address that routers listen on."},
    {"start_deadline", OPTION_UINT, AT(start_deadline_s), RANGE(10, 86400, 900), .unit = "s",
     .help = "When not all replicas are ready by then, the service starts DEGRADED or fails. An "
             "engine may take as long to load."},
    {"grace", OPTION_UINT, AT(grace_s), RANGE(0, 3600, 30), .unit = "s",
     .help = "How long running requests may go on when the service ends."},
    {"limits", OPTION_GROUP, .help = "What one client may ask of a router."},
    {"limits.body_bytes", OPTION_UINT, AT(max_body_bytes), RANGE(1024, 256 << 20, 8 << 20),
     .unit = "bytes", .help = "Largest request body; more is answered 413."},
    {"limits.connections", OPTION_UINT, AT(max_connections), RANGE(1, 1000000, 4096),
     .help = "Open connections of one router."},
    {"limits.header_timeout", OPTION_UINT, AT(header_timeout_s), RANGE(1, 3600, 15), .unit = "s",
     .help = "Time in which a request's header must have come."},
    {"limits.idle_timeout", OPTION_UINT, AT(idle_timeout_s), RANGE(1, 3600, 75), .unit = "s",
     .help = "How long an idle connection is kept open."},
    {"limits.request_timeout", OPTION_UINT, AT(request_timeout_s), RANGE(1, 86400, 600),
     .unit = "s", .help = "Longest time of one request from its arrival to its last token."},
    {"heartbeat", OPTION_GROUP, .help = "How nodes are watched."},
    {"heartbeat.interval_ms", OPTION_UINT, AT(heartbeat_ms), RANGE(50, 60000, 1000), .unit = "ms",
     .help = "Time between two heartbeats of a node."},
    {"heartbeat.missed", OPTION_UINT, AT(missed_heartbeats), RANGE(1, 100, 3),
     .help = "After so many missing heartbeats a node is suspect and gets no new requests."},
    {"cache", OPTION_GROUP, .help = "The node-local weight cache."},
    {"cache.bytes", OPTION_UINT, AT(cache_bytes), RANGE(0, INT64_MAX, 0), .unit = "bytes",
     .help = "Old models leave the cache above this size; 0: no limit."},
    {.path = NULL},
};

const struct option *option_table(void)
{
    return OPTIONS;
}

const struct option *option_find(const char *pattern)
{
    for (const struct option *o = OPTIONS; o->path; o++)
        if (strcmp(o->path, pattern) == 0)
            return o;
    return NULL;
}

const char *option_key(const struct option *o)
{
    const char *dot = strrchr(o->path, '.');
    return dot ? dot + 1 : o->path;
}

bool option_in_group(const struct option *o, const char *group)
{
    size_t n = strlen(group);
    const char *key = option_key(o);
    if (n == 0)
        return key == o->path;
    return strncmp(o->path, group, n) == 0 && o->path[n] == '.' && o->path + n + 1 == key;
}

static void describe_default(const struct option *o, struct buf *out)
{
    if (o->required)
        buf_puts(out, "**required**");
    else if (o->type == OPTION_GROUP || o->type == OPTION_LIST)
        buf_puts(out, "");
    else if (o->type == OPTION_STRING)
        buf_printf(out, o->preset_text ? "`%s`" : "%s", o->preset_text ? o->preset_text : "unset");
    else if (o->type == OPTION_BOOL)
        buf_puts(out, o->preset ? "`true`" : "`false`");
    else if (o->type == OPTION_CHOICE || (o->type == OPTION_COUNT && o->preset == 0))
        buf_printf(out, "`%s`", o->words[o->preset]);
    else
        buf_printf(out, "`%" PRIu64 "`", o->preset);
}

static void describe_values(const struct option *o, struct buf *out)
{
    if (o->type == OPTION_UINT || o->type == OPTION_COUNT)
        buf_printf(out, "%" PRIu64 " … %" PRIu64, o->min, o->max);
    if (o->unit)
        buf_printf(out, " %s", o->unit);
    for (size_t i = 0; o->words && o->words[i]; i++)
        buf_printf(out, "%s`%s`", i || o->type == OPTION_COUNT ? ", " : "", o->words[i]);
    if (o->type == OPTION_BOOL)
        buf_puts(out, "`true`, `false`");
    if (o->type == OPTION_STRING && !o->words)
        buf_puts(out, "text");
    if (o->type == OPTION_LIST)
        buf_puts(out, "list of text");
}

/* What is the machine's or the person's matter, and no service's. */
static const char ENVIRONMENT[] =
    "\n## Environment\n\n"
    "| variable | default | meaning |\n|---|---|---|\n"
    "| `EXASERVE_HOME` | found from the command itself | The installation, the folder above `bin`: "
    "for plain `sbatch jobs/serve.sbatch`. |\n"
    "| `EXASERVE_RUN_DIR` | `~/.exaserve` | Where services keep what they know of themselves; an "
    "absolute path that all nodes share. |\n"
    "| `EXASERVE_CACHE` | `${TMPDIR:-/tmp}/exaserve-UID` | Node-local folder for weights. |\n"
    "| `EXASERVE_LOG` | `info` | `debug`, `info`, `warn` or `error`. |\n"
    "| `EXASERVE_KERNELS` | the best for the CPU | `ref` (plain C), `avx2`, `avxvnni`, `avx512`, "
    "`amx`: the same bits but for `ref`; `amx-bf16`: float weights faster, less exact. |\n\n"
    "Both folders, run directory and cache, must be yours, no symbolic link, and private (mode "
    "0700): a folder that "
    "is not there is made, one that others can enter is refused unless it is empty.\n";

void option_describe(struct buf *out)
{
    buf_puts(out,
             "# Configuration: serve.yaml\n\n"
             "A service is described by one YAML file. Unknown keys, wrong types and impossible "
             "values are errors with file and line, before anything is submitted. "
             "Anchors, aliases, tags and several documents in one file are refused. "
             "`exaserve submit FILE --dry-run` prints the whole configuration with its defaults "
             "filled in. [jobs/serve.example.yaml](../jobs/serve.example.yaml) is a short file to "
             "begin with, [jobs/serve.all.yaml](../jobs/serve.all.yaml) one with every key.\n\n"
             "| key | default | values | meaning |\n|---|---|---|---|\n");
    for (const struct option *o = OPTIONS; o->path; o++) {
        buf_printf(out, "| `%s` | ", o->path);
        describe_default(o, out);
        buf_puts(out, " | ");
        describe_values(o, out);
        buf_printf(out, " | %s |\n", o->help);
    }
    buf_puts(out, ENVIRONMENT);
}

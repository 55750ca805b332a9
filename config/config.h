/* config.h - the service's configuration (serve.yaml): schema, defaults, validation. libcyaml reads it; unknown keys, wrong types and impossible
 * values are ERR_CONFIG with file and line, before anything is submitted.
 */
#ifndef EXA_CONFIG_CONFIG_H
#define EXA_CONFIG_CONFIG_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { CONFIG_MAX_MODELS = 1 /* several models: with the deployments API */ };

enum config_control { CONTROL_SHARED = 0, CONTROL_DEDICATED = 1 };

struct config_model {
    char *name;            /* as clients write it; NULL: the pack's model name */
    char *pack;            /* path of a pack (.h5); config_load makes it absolute */
    uint32_t replicas;     /* wanted in all; 0 = "fill": one a serving node */
    uint32_t min_replicas; /* for DEGRADED; 0: all but 5 % */
    char *engine;          /* "cpu" */
    uint32_t context;      /* tokens; 0: the model's, at most 4096 */
    uint32_t slots;        /* requests at once in a replica; default 8 */
    uint32_t threads;      /* compute threads of a replica; 0: the node's share */
    uint32_t tensor_parallel, pipeline_parallel; /* shards of a replica: their product; default 1 */
    uint32_t shards_per_node; /* of one replica, at most; 0: all of them on one node */
    /* Settings of its engine (engine/settings.h). */
    char *kv_type; /* "f16", "f32", "q8" */
    char *
        memory_fraction; /* of the node's available memory, for the KV of its engines; NULL: as needed */
    uint32_t token_budget; /* rows of one step; 0: the engine's default */
    uint32_t queue;        /* requests that wait in a replica */
    bool prefix_cache;
    char *speculation;       /* "off", "lookup", "draft" */
    char *draft;             /* path of an image; NULL: none */
    uint32_t step_timeout_s; /* of a replica with requests, default 60 */
};

struct config {
    char *name; /* service and job name; default "exaserve" */
    struct config_model *models;
    unsigned models_count;
    /* slurm */
    uint32_t nodes; /* default 1 */
    char *time;     /* Slurm time such as "1:00:00"; NULL: the partition's */
    char *partition, *account, *qos, *reservation, *constraint; /* NULL: unset */
    bool exclusive;                                             /* default true */
    char **sbatch_args;                                         /* further arguments */
    unsigned sbatch_args_count;
    /* shape */
    int control;      /* enum config_control */
    uint32_t routers; /* 0: by size */
    bool standbys;    /* false: none laid out */
    /* service */
    uint32_t port;              /* of the first router; 0: any free one */
    char *listen;               /* address routers bind; default "0.0.0.0" */
    uint32_t start_deadline_s;  /* default 900 */
    uint32_t grace_s;           /* drain at the end, default 30 */
    uint32_t max_body_bytes;    /* default 8 MiB */
    uint32_t max_connections;   /* a router, default 4096 */
    uint32_t header_timeout_s;  /* default 15 */
    uint32_t idle_timeout_s;    /* keep-alive, default 75 */
    uint32_t request_timeout_s; /* a request's total, default 600 */
    uint32_t heartbeat_ms;      /* default 1000 */
    uint32_t missed_heartbeats; /* suspect after, default 3 */
    uint64_t cache_bytes;       /* node cache limit; 0: no limit */
};

/* Text and file name (for messages). On success free with config_free. ERR_CONFIG: "FILE:LINE: …", the first fault. */
int config_parse(struct config **out, const char *text, size_t n, const char *file, struct err *e);
/* The same from a file; a relative pack path is taken from the file's own folder. */
int config_load(struct config **out, const char *path, struct err *e);
/* As config_load, and what is wanted must fit a job of that many nodes (0: slurm.nodes), still with file and line. Before submitting: a
 * service that runs already must not refuse its own file because it was started on other nodes than the file says. */
int config_load_for(struct config **out, const char *path, uint32_t nodes, struct err *e);
void config_free(struct config *c);
/* Canonical YAML of the whole configuration with defaults filled in (what --dry-run prints; malloc'd). */
int config_dump(const struct config *c, char **text, struct err *e);

#endif

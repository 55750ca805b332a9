/* url.c - `exaserve url`: what an OpenAI client needs. Standard output holds nothing else, for scripts. */
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/target.h"

#include <stdio.h>
#include <stdlib.h>

static int run(int argc, char **argv)
{
    bool all = false, key = false, env = false;
    const struct opt opts[] = {
        {"all", 'a', OPT_FLAG, .value = &all, .help = "the URLs of all routers, one a line"},
        {"key", 'k', OPT_FLAG, .value = &key, .help = "the API key instead of the URL"},
        {"env", 'e', OPT_FLAG, .value = &env,
         .help = "both, as `export OPENAI_BASE_URL=…` and `export OPENAI_API_KEY=…`"},
        {.name = NULL},
    };
    struct target *t;
    int code = target_of_line(&t, &COMMAND_URL, opts, argc, argv);
    if (code != OPT_GO_ON)
        return code;
    struct err e = ERR_INIT;
    if (target_urls(t, &e) != 0) {
        code = say_error("url", &e);
    } else {
        code = EXIT_READY;
        if (env)
            printf("export OPENAI_BASE_URL=%s/v1\nexport OPENAI_API_KEY=%s\n", t->endpoint.urls[0],
                   t->endpoint.key);
        else if (key)
            printf("%s\n", t->endpoint.key);
        else
            for (uint32_t i = 0; i < (all ? t->endpoint.n_urls : 1); i++)
                printf("%s/v1\n", t->endpoint.urls[i]);
    }
    free(t);
    return code;
}

const struct command COMMAND_URL = {
    .name = "url",
    .operands = "[JOB]",
    .max_operands = 1,
    .summary = "print the URL (or the key) for OpenAI clients",
    .details =
        "Print the base URL of the service, ending in /v1, as OpenAI clients want it. With --env:\n"
        "  eval \"$(exaserve url --env)\"\n",
    .run = run,
};

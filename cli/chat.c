/* chat.c - `exaserve chat`: a conversation in the terminal, or one turn a line from a pipe. */
#include "cli/chat_stream.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/target.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    SILENCE_MS = 10 * 60 * 1000, /* a long prompt on a slow machine takes its time */
    LIST_TIMEOUT_MS = 15 * 1000,
    LINE_MAX_BYTES = 1 << 20,
};

struct chat {
    struct target *t;
    struct http http;
    char model[160];
    json_t *history; /* messages */
    struct buf answer;
    const char *system;
    uint64_t max_tokens, seed;
    double temperature;
    bool has_seed, tty;
    uint32_t url; /* the one that answered last */
    int stop_fd;  /* signalfd of SIGINT */
};

static int show(void *ctx, const char *text, size_t n, struct err *e)
{
    struct chat *c = ctx;
    buf_put(&c->answer, text, n);
    for (size_t i = 0; i < n; i++) { /* a model must not steer the terminal */
        size_t control = say_control(text + i, n - i);
        bool plain = !control || text[i] == '\n' || text[i] == '\t';
        putchar(plain ? text[i] : '?');
        i += control > 1;
    }
    return fflush(stdout) ? err_set(e, ERR_SYS, "cannot write to standard output") : 0;
}

static int history_reset(struct chat *c)
{
    json_decref(c->history);
    c->history = json_array();
    if (c->system)
        json_array_append_new(c->history,
                              json_pack("{s:s, s:s}", "role", "system", "content", c->system));
    return c->history ? 0 : ERR_NOMEM;
}

/* The first model of /v1/models, from the first URL that answers. */
static int model_find(struct chat *c, struct err *e)
{
    int rc = ERR_PEER;
    for (uint32_t i = 0; i < c->t->endpoint.n_urls; i++) {
        struct buf body;
        long status = 0;
        buf_init(&body, HTTP_MAX_BODY);
        rc = http_get(&c->http, c->t->endpoint.urls[i], "/v1/models", LIST_TIMEOUT_MS, &body,
                      &status, e);
        if (!rc && status != 200) {
            char text[300];
            http_error_text(&body, text, sizeof text);
            rc = err_set(e, status >= 500 ? ERR_AGAIN : ERR_CONFIG, "the service refused (%ld): %s",
                         status, text);
        }
        json_t *o = rc ? NULL : json_loadb((const char *)body.data, body.len, 0, NULL);
        const char *id =
            json_string_value(json_object_get(json_array_get(json_object_get(o, "data"), 0), "id"));
        if (!rc && !id)
            rc = err_set(e, ERR_PROTO, "%s/v1/models names no model", c->t->endpoint.urls[i]);
        if (!rc) {
            snprintf(c->model, sizeof c->model, "%s", id);
            c->url = i;
        }
        json_decref(o);
        buf_fini(&body);
        if (!rc || rc == ERR_CONFIG)
            break;
    }
    return rc;
}

static char *request_body(struct chat *c)
{
    json_t *o =
        json_pack("{s:s, s:b, s:O}", "model", c->model, "stream", 1, "messages", c->history);
    if (o && c->max_tokens)
        json_object_set_new(o, "max_tokens", json_integer((json_int_t)c->max_tokens));
    if (o && c->temperature >= 0)
        json_object_set_new(o, "temperature", json_real(c->temperature));
    if (o && c->has_seed)
        json_object_set_new(o, "seed", json_integer((json_int_t)c->seed));
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

/* A SIGINT that came while nobody asked for it must not end the next answer. */
static void stop_forget(struct chat *c)
{
    struct signalfd_siginfo info;
    while (read(c->stop_fd, &info, sizeof info) == (ssize_t)sizeof info)
        ;
}

/* The answer to the history, over the URLs in turn: the next one only while nothing was shown. */
static int answer_get(struct chat *c, struct chat_result *r, struct err *e)
{
    char *body = request_body(c);
    if (!body)
        return err_set(e, ERR_NOMEM, "out of memory");
    int rc = ERR_PEER;
    uint32_t n = c->t->endpoint.n_urls;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (c->url + i) % n;
        const struct chat_request q = {.base_url = c->t->endpoint.urls[at],
                                       .body = body,
                                       .stop_fd = c->stop_fd,
                                       .timeout_ms = SILENCE_MS,
                                       .on_text = show,
                                       .ctx = c};
        buf_reset(&c->answer);
        rc = chat_stream(&c->http, &q, r, e);
        if (!rc)
            c->url = at;
        if ((rc != ERR_PEER && rc != ERR_AGAIN) || r->any)
            break; /* a router that is gone or drains: the next one */
    }
    free(body);
    return rc;
}

/* Forget the oldest question and its answer; the system message and the question at hand stay. false: there is none. */
static bool history_shorten(struct chat *c)
{
    size_t first = c->system ? 1 : 0;
    if (json_array_size(c->history) < first + 3)
        return false;
    json_array_remove(c->history, first);
    json_array_remove(c->history, first);
    return true;
}

/* The answer to the history; what does not fit the model's context any more is left out, the oldest first. */
static int answer_fitting(struct chat *c, struct chat_result *r, struct err *e)
{
    bool left_out = false;
    int rc;
    while ((rc = answer_get(c, r, e)) && r->too_long && history_shorten(c))
        left_out = true;
    if (left_out && (!rc || rc == ERR_CANCELED))
        fprintf(stderr, "(the oldest turns no longer fit the model's context: left out)\n");
    return rc;
}

/* One turn. A failed one leaves the history as it was. */
static int turn(struct chat *c, const char *text, struct err *e)
{
    json_t *m = json_pack("{s:s, s:s}", "role", "user", "content", text);
    if (!m)
        return err_set(e, ERR_CONFIG, "the line is not valid UTF-8");
    json_t *before = json_copy(c->history);
    json_array_append_new(c->history, m);
    struct chat_result r = {.any = false};
    int rc = answer_fitting(c, &r, e);
    if (r.any)
        printf("\n");
    fflush(stdout);
    if (before && rc && rc != ERR_CANCELED) {
        json_decref(c->history);
        c->history = before;
        return rc;
    }
    json_decref(before);
    if (rc == ERR_CANCELED)
        fprintf(stderr, "(stopped)\n");
    else if (strcmp(r.finish, "length") == 0 && c->tty)
        fprintf(stderr, "(the answer reached its length limit)\n");
    json_t *a = json_pack("{s:s, s:s#}", "role", "assistant", "content",
                          c->answer.len ? (const char *)c->answer.data : "", (int)c->answer.len);
    if (a)
        json_array_append_new(c->history, a);
    return 0;
}

/* A line of standard input without its end. 1: got one, 0: the end, ERR_CANCELED: Ctrl-C at the prompt. */
static int line_get(struct chat *c, char **line, size_t *cap)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    if (c->tty)
        fprintf(stderr, "> ");
    sigprocmask(SIG_UNBLOCK, &set,
                NULL); /* lets the read be interrupted; the handler does nothing */
    ssize_t n = getline(line, cap, stdin);
    int why = errno;
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (n >= 0) {
        (*line)[strcspn(*line, "\r\n")] = 0;
        return 1;
    }
    if (why != EINTR || !c->tty || feof(stdin))
        return 0;
    clearerr(stdin);
    fprintf(stderr, "\n");
    return ERR_CANCELED;
}

static int talk(struct chat *c)
{
    char *line = NULL;
    size_t cap = 0;
    int got, code = EXIT_READY;
    while ((got = line_get(c, &line, &cap)) != 0) {
        struct err e = ERR_INIT;
        const char *text = got == 1 ? line + strspn(line, " \t") : "";
        if (!*text)
            continue;
        if (strcmp(text, "/quit") == 0 || strcmp(text, "/exit") == 0)
            break;
        int rc = 0;
        stop_forget(c);
        if (strcmp(text, "/reset") == 0)
            rc = history_reset(c);
        else if (strcmp(text, "/help") == 0)
            fprintf(
                stderr,
                "/reset forgets the conversation, /quit or Ctrl-D ends, Ctrl-C stops an answer\n");
        else if (strlen(line) > LINE_MAX_BYTES)
            rc = err_set(&e, ERR_LIMIT, "the line has more than %d bytes", LINE_MAX_BYTES);
        else
            rc = turn(c, line, &e);
        if (ferror(stdout))
            break; /* nobody reads on: main says it */
        if (rc)
            code = say_error("chat", &e);
        if (rc && !c->tty)
            break; /* later lines of a script would answer something else */
    }
    if (!got && c->tty)
        fprintf(stderr, "\n");
    free(line);
    return code;
}

static void nothing(int sig)
{
}

static int stop_fd_make(struct err *e)
{
    sigset_t set;
    const struct sigaction sa = {.sa_handler =
                                     nothing}; /* no SA_RESTART: a read at the prompt ends */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaction(SIGINT, &sa, NULL);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        err_sys(e, errno, "cannot watch for Ctrl-C");
    return fd;
}

static int chat(struct chat *c, const char *job, struct err *e)
{
    int rc = target_find(c->t, job, e);
    if (!rc)
        rc = target_urls(c->t, e);
    if (!rc)
        rc = http_init(&c->http, c->t->endpoint.key, e);
    if (!rc)
        rc = target_silent(c->t, model_find(c, e), e);
    if (!rc && history_reset(c) != 0)
        rc = err_set(e, ERR_CONFIG, "--system is not valid UTF-8");
    if (!rc && (c->stop_fd = stop_fd_make(e)) < 0)
        rc = ERR_SYS;
    if (rc)
        return rc;
    if (c->tty)
        fprintf(stderr, "%s at %s. Ctrl-C stops an answer, Ctrl-D ends, /reset forgets.\n",
                c->model, c->t->endpoint.urls[c->url]);
    return talk(c);
}

static int run(int argc, char **argv)
{
    struct chat c = {.temperature = -1, .stop_fd = -1, .seed = UINT64_MAX};
    const struct opt opts[] = {
        {"system", 's', OPT_TEXT, "TEXT", &c.system, .help = "system message"},
        {"max-tokens", 'm', OPT_UINT, "N", &c.max_tokens, 1, 1 << 20, "longest answer, in tokens"},
        {"temperature", 't', OPT_NUMBER, "X", &c.temperature, 0, 2,
         "0: always the likeliest token"},
        {"seed", 0, OPT_UINT, "N", &c.seed, 0, INT64_MAX, "same seed, same answers"},
        {.name = NULL},
    };
    const char *operand[OPT_MAX_OPERANDS];
    int code = opt_parse(&COMMAND_CHAT, opts, argc, argv, operand);
    if (code != OPT_GO_ON)
        return code;
    struct err e = ERR_INIT;
    c.has_seed = c.seed != UINT64_MAX;
    c.tty = isatty(STDIN_FILENO);
    c.t = calloc(1, sizeof *c.t);
    buf_init(&c.answer, HTTP_MAX_BODY);
    int rc = c.t ? chat(&c, operand[0], &e) : err_set(&e, ERR_NOMEM, "out of memory");
    code = rc < 0 ? say_error("chat", &e) : rc;
    if (c.stop_fd >= 0)
        close(c.stop_fd);
    json_decref(c.history);
    buf_fini(&c.answer);
    http_fini(&c.http);
    free(c.t);
    return code;
}

const struct command COMMAND_CHAT = {
    .name = "chat",
    .operands = "[JOB]",
    .max_operands = 1,
    .summary = "talk to the model",
    .details =
        "Talk to the model; answers are streamed and the conversation is kept. Ctrl-C stops an\n"
        "answer, Ctrl-D or /quit ends, /reset forgets. Each line from a pipe is one turn.\n",
    .run = run,
};

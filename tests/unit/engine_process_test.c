/* engine_process_test.c - the real exaserve-engine, started as a worker starts it: through the stub, with a channel on 3 … 7.
 *
 * EXASERVE_BIN names the folder of the program (default: build/release/bin). Children are ended by their own pid.
 */
#include "engine_support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "engine/ring.h"

#define LONG_US 120000000ull /* a loaded machine; nothing waits for it in vain */
enum { DEPLOYMENT = 3, REPLICA = 5, EPOCH = 9, N_CTX = 256, N_SLOTS = 4 };

static char program[4096], tiny_path[4096];

/* Skips the test that calls it, where there is none. */
static void need_program(void)
{
    snprintf(program, sizeof program, "%s/exaserve-engine",
             env_or("EXASERVE_BIN", "build/release/bin"));
    if (!access(program, X_OK))
        return;
    print_message("skipped: no %s (make, or set EXASERVE_BIN)\n", program);
    skip();
}

/* --- a worker's part ------------------------------------------------------------------------------------- */

struct child {
    struct channel *channel;
    pid_t pid;
    struct buf b;
    uint16_t type;
};

/* In the child: descriptors to their numbers, then the stub, which runs `command`. */
static void exec_stub(const int fds[CHANNEL_FDS], pid_t parent, char *const command[])
{
    char parent_text[16], n_text[16];
    char *argv[40] = {program, "--stub", parent_text, n_text, "--"};
    int high[CHANNEL_FDS];
    snprintf(parent_text, sizeof parent_text, "%d", (int)parent);
    snprintf(n_text, sizeof n_text, "%d", CHANNEL_FD_STATUS + 1);
    for (int i = 0; command[i]; i++)
        argv[5 + i] = command[i];
    for (int i = 0; i < CHANNEL_FDS; i++)
        high[i] = fcntl(fds[i], F_DUPFD, 100);
    for (int i = 0; i < CHANNEL_FDS; i++)
        dup2(high[i], CHANNEL_FD_COMMANDS + i);
    execv(program, argv);
    _exit(99);
}

static void child_spawn(struct child *c, char *const command[])
{
    int fds[CHANNEL_FDS];
    struct err e = ERR_INIT;
    MUST(channel_create(&c->channel, fds, &e), e);
    buf_init(&c->b, RING_MAX_RECORD);
    pid_t parent = getpid();
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (!c->pid)
        exec_stub(fds, parent, command);
}

static void child_serve(struct child *c, const char *image, const char *n_ctx)
{
    char *command[] = {program, "--serve",     "--image", (char *)image, "--deployment",
                       "3",     "--replica",   "5",       "--epoch",     "9",
                       "--ctx", (char *)n_ctx, "--slots", "4",           "--threads",
                       "2",     NULL};
    child_spawn(c, command);
}

static void child_set(struct child *c, const char *settings)
{
    char *command[] = {program,
                       "--serve",
                       "--image",
                       tiny_path,
                       "--deployment",
                       "3",
                       "--replica",
                       "5",
                       "--epoch",
                       "9",
                       "--ctx",
                       "256",
                       "--slots",
                       "4",
                       "--threads",
                       "1",
                       "--node-index",
                       "1",
                       "--node-count",
                       "2",
                       "--settings",
                       (char *)settings,
                       NULL};
    child_spawn(c, command);
}

static bool child_ended(struct child *c, int *status)
{
    uint64_t end = clock_now_us() + LONG_US;
    while (clock_now_us() < end) {
        pid_t got = waitpid(c->pid, status, WNOHANG);
        if (got == c->pid) {
            c->pid = 0;
            return true;
        }
        clock_sleep_us(1000);
    }
    return false;
}

static void child_drop(struct child *c)
{
    if (c->pid > 0) {
        int status;
        kill(c->pid, SIGKILL);
        waitpid(c->pid, &status, 0);
    }
    channel_destroy(c->channel);
    buf_fini(&c->b);
}

/* The next record, or a failure when the engine died or says nothing. */
static void child_next(struct child *c)
{
    struct err e = ERR_INIT;
    uint64_t end = clock_now_us() + LONG_US;
    for (;;) {
        int status, rc = channel_recv(c->channel, &c->type, &c->b, &e);
        if (rc < 0)
            fail_msg("%s", e.text);
        if (rc)
            return;
        if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
            c->pid = 0;
            fail_msg("the engine ended with status %x", (unsigned)status);
        }
        if (clock_now_us() > end)
            fail_msg("no record from the engine");
        channel_wait(c->channel, 20000);
    }
}

static void child_ready(struct child *c, struct msg_engine_ready *ready)
{
    struct err e = ERR_INIT;
    child_next(c);
    if (c->type == MSG_ENGINE_FAILED) {
        struct msg_text text;
        MUST(msg_text_get(&text, c->b.data, c->b.len, &e), e);
        fail_msg("engine failed: %s", text.text);
    }
    assert_int_equal(c->type, MSG_ENGINE_READY);
    MUST(msg_engine_ready_get(ready, c->b.data, c->b.len, &e), e);
}

static void child_submit(struct child *c, struct job *j)
{
    struct err e = ERR_INIT;
    struct buf b;
    buf_init(&b, RING_MAX_RECORD);
    msg_submit_put(&b, &j->submit);
    MUST(channel_send(c->channel, MSG_SUBMIT, b.data, b.len, &e), e);
    buf_fini(&b);
}

static void job_for_child(struct job *j, uint32_t slot, const uint32_t *tokens, uint32_t n,
                          uint32_t max_tokens)
{
    job_init(j, slot, tokens, n, max_tokens);
    j->submit.deployment = DEPLOYMENT;
    j->submit.replica = REPLICA;
    j->submit.epoch = EPOCH;
}

/* Take one STEPS record apart. */
static void child_steps(struct child *c, struct jobs *jobs)
{
    struct err e = ERR_INIT;
    child_next(c);
    assert_int_equal(c->type, MSG_STEPS);
    struct rd r = rd_make(c->b.data, c->b.len);
    struct step_section s;
    MUST(msg_section_get(&r, &s, &e), e);
    assert_int_equal(s.deployment, DEPLOYMENT);
    assert_int_equal(s.replica, REPLICA);
    assert_int_equal(s.epoch, EPOCH);
    for (uint32_t i = 0; i < s.n_entries; i++) {
        struct step_entry entry;
        struct msg_text text = {0};
        struct err why = ERR_INIT;
        uint32_t tokens[64];
        MUST(msg_entry_get(&r, &entry, &e), e);
        if (entry.ext_type == EXT_ERROR) {
            MUST(msg_text_get(&text, entry.ext, entry.ext_bytes, &e), e);
            err_set(&why, text.code, "%s", text.text);
        }
        for (uint32_t k = 0; k < entry.n_tokens; k++)
            tokens[k] = u32_at(entry.tokens, k);
        jobs_take(jobs, &(struct step_result){
                            .attempt = entry.attempt,
                            .position = entry.position,
                            .n_tokens = entry.n_tokens,
                            .finish = entry.finish,
                            .tokens = tokens,
                            .error = why.code ? &why : NULL,
                        });
    }
    assert_true(rd_done(&r));
}

static void child_until_done(struct child *c, struct jobs *jobs)
{
    for (;;) {
        bool all = true;
        for (uint32_t i = 0; i < jobs->n; i++)
            all = all && jobs->list[i]->finish != FINISH_NONE;
        if (all)
            return;
        child_steps(c, jobs);
    }
}

/* --- serving --------------------------------------------------------------------------------------------- */

static json_t *golden_list(void)
{
    char path[4096];
    json_error_t error;
    snprintf(path, sizeof path, "%s/greedy.json",
             env_or("EXASERVE_GOLDEN", access("tests/golden/greedy.json", R_OK) ? "../shared/golden"
                                                                                : "tests/golden"));
    return json_load_file(path, 0, &error);
}

static void test_golden_tokens_come_through_the_channel(void **state)
{
    enum { N = INSTRUMENTED ? 2 : 4, N_TOKENS = INSTRUMENTED ? 3 : 12 };
    need_program();
    if (!support_image())
        skip();
    json_t *golden = golden_list();
    assert_non_null(golden);
    struct child c;
    static struct job all[N];
    struct job *list[N];
    struct jobs jobs = {list, N};
    struct msg_engine_ready ready;
    child_serve(&c, support_image(), "256");
    for (uint32_t i = 0; i < N; i++) { /* sent while it still loads */
        const json_t *ids = json_object_get(json_array_get(golden, i), "prompt_tokens");
        uint32_t prompt[N_CTX], n = (uint32_t)json_array_size(ids);
        assert_true(n < N_CTX - N_TOKENS);
        for (uint32_t k = 0; k < n; k++)
            prompt[k] = (uint32_t)json_integer_value(json_array_get(ids, k));
        job_for_child(&all[i], i, prompt, n, N_TOKENS);
        list[i] = &all[i];
        child_submit(&c, &all[i]);
    }
    child_ready(&c, &ready);
    assert_int_equal(ready.n_slots, N_SLOTS);
    assert_int_equal(ready.n_ctx, N_CTX);
    assert_int_equal(ready.kv_total_tokens, N_SLOTS * N_CTX);
    assert_true(ready.warm_us > 0 && ready.memory_bytes > 0);
    child_until_done(&c, &jobs);
    for (uint32_t i = 0; i < N; i++) {
        const json_t *entry = json_array_get(golden, i);
        assert_int_equal(all[i].finish, FINISH_LENGTH);
        assert_int_equal(all[i].n_out, N_TOKENS);
        for (uint32_t k = 0; k < N_TOKENS; k++) {
            json_t *want = json_array_get(json_object_get(entry, "tokens"), k);
            json_t *gap = json_array_get(json_object_get(entry, "gap"), k);
            if (json_integer_value(want) == all[i].out[k])
                continue;
            assert_true(json_number_value(gap) <= 0.05);
            break;
        }
    }
    struct channel_status *st = channel_status(c.channel);
    assert_true(atomic_load(&st->n_tokens) >= N * N_TOKENS);
    assert_true(atomic_load(&st->n_steps) >= N_TOKENS && atomic_load(&st->last_step_us) > 0);
    int status;
    struct err e = ERR_INIT;
    MUST(channel_send(c.channel, MSG_ENGINE_STOP, NULL, 0, &e), e);
    assert_true(child_ended(&c, &status));
    assert_int_equal(status, 0);
    json_decref(golden);
    child_drop(&c);
}

static const uint32_t PROMPT[] = {3, 1, 4, 1, 5, 9, 2, 6};

static void test_refused_requests_are_answered(void **state)
{
    enum { N = 6 };
    need_program();
    struct child c;
    struct msg_engine_ready ready;
    static struct job j[N];
    struct job *list[N];
    struct jobs jobs = {list, N};
    uint32_t tokens[300] = {0};
    child_serve(&c, tiny_path, "256");
    child_ready(&c, &ready);
    for (uint32_t i = 0; i < N; i++) {
        list[i] = &j[i];
        job_for_child(&j[i], i, i == 2 ? tokens : PROMPT, i == 2 ? 300 : 8, 3);
    }
    j[0].submit.epoch = EPOCH - 1;
    j[1].submit.replica = REPLICA + 1;
    j[3].submit.sampling.temperature = 1e6f;
    j[5].submit.start = 7; /* a replayed one */
    j[5].submit.max_tokens = 9;
    for (uint32_t i = 0; i < N; i++)
        child_submit(&c, &j[i]);
    struct err e = ERR_INIT;
    MUST(channel_send(c.channel, MSG_SUBMIT, "rubbish", 7, &e), e); /* dropped, and it lives on */
    MUST(channel_send(c.channel, 999, "rubbish", 7, &e), e);
    child_until_done(&c, &jobs);
    assert_int_equal(j[0].finish, FINISH_REFUSED);
    assert_int_equal(j[0].error.code, ERR_FENCED);
    assert_non_null(strstr(j[0].error.text, "epoch 9"));
    assert_int_equal(j[1].finish, FINISH_REFUSED);
    assert_int_equal(j[2].finish, FINISH_ERROR);
    assert_int_equal(j[2].error.code, ERR_LIMIT);
    assert_non_null(strstr(j[2].error.text, "300"));
    assert_int_equal(j[3].finish, FINISH_ERROR);
    assert_int_equal(j[4].finish, FINISH_LENGTH);
    assert_int_equal(j[5].finish, FINISH_LENGTH);
    assert_int_equal(j[5].n_out, 2);
    child_drop(&c);
}

/* An engine in the midst of its one answer, of 240 tokens. */
static void child_busy(struct child *c, const char *image, struct job *a, struct jobs *jobs)
{
    struct msg_engine_ready ready;
    child_serve(c, image, "256");
    child_ready(c, &ready);
    job_for_child(a, 0, PROMPT, 8, 240);
    child_submit(c, a);
    child_steps(c, jobs);
}

static void test_sigterm_finishes_what_runs(void **state)
{
    need_program();
    struct child c;
    static struct job a;
    struct job *list[] = {&a};
    struct jobs jobs = {list, 1};
    int status;
    child_busy(&c, tiny_path, &a, &jobs);
    kill(c.pid, SIGTERM);
    child_until_done(&c, &jobs);
    assert_int_equal(a.finish, FINISH_LENGTH);
    assert_true(child_ended(&c, &status));
    assert_int_equal(status, 0);
    child_drop(&c);
}

static void test_cancel_through_the_channel(void **state)
{
    need_program();
    struct child c;
    static struct job a;
    struct job *list[] = {&a};
    struct jobs jobs = {list, 1};
    struct err e = ERR_INIT;
    struct buf b;
    if (!support_image())
        skip();
    child_busy(&c, support_image(), &a, &jobs);
    buf_init(&b, 4096);
    msg_cancel_put(&b, &(struct msg_cancel){a.submit.attempt, DEPLOYMENT, REPLICA});
    MUST(channel_send(c.channel, MSG_CANCEL, b.data, b.len, &e), e);
    buf_fini(&b);
    child_until_done(&c, &jobs);
    assert_int_equal(a.finish, FINISH_CANCELED);
    assert_true(a.n_out < 240);
    child_drop(&c);
}

static void test_a_failed_start_has_last_words(void **state)
{
    need_program();
    struct child c;
    struct msg_text text;
    struct err e = ERR_INIT;
    int status;
    child_serve(&c, tiny_path, "100000");
    uint64_t end = clock_now_us() + LONG_US;
    while (!channel_recv(c.channel, &c.type, &c.b, &e)) {
        assert_true(clock_now_us() < end);
        channel_wait(c.channel, 20000);
    }
    assert_int_equal(c.type, MSG_ENGINE_FAILED);
    MUST(msg_text_get(&text, c.b.data, c.b.len, &e), e);
    assert_int_equal(text.code, ERR_CONFIG);
    assert_non_null(strstr(text.text, "100000"));
    assert_true(child_ended(&c, &status));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    child_drop(&c);
}

/* What serve.yaml says of an engine gets there; requests wait in its queue, and past it they are refused. */
static void test_settings_get_there(void **state)
{
    enum { N = 9, N_QUEUE = 4 };
    need_program();
    struct child c;
    struct msg_engine_ready ready;
    static struct job j[N];
    struct job *list[N];
    struct jobs jobs = {list, N};
    uint32_t n_refused = 0;
    child_set(&c, "queue=4 kv_type=q8 prefix_cache=off speculation=lookup token_budget=64");
    child_ready(&c, &ready);
    assert_int_equal(ready.n_slots, N_SLOTS + N_QUEUE);
    for (uint32_t i = 0; i < N; i++) {
        list[i] = &j[i];
        job_for_child(&j[i], i, PROMPT, 8, 200);
        child_submit(&c, &j[i]);
    }
    child_until_done(&c, &jobs);
    for (uint32_t i = 0; i < N; i++) {
        n_refused += j[i].finish == FINISH_REFUSED;
        assert_true(j[i].finish == FINISH_REFUSED || j[i].n_out == 200);
        if (j[i].finish == FINISH_REFUSED)
            assert_int_equal(j[i].error.code, ERR_AGAIN);
    }
    assert_true(n_refused <= 1); /* one, unless a stream had ended before it came */
    struct channel_status *st = channel_status(c.channel);
    assert_true(atomic_load(&st->n_drafted) > 0 && atomic_load(&st->step_p99_us) > 0);
    assert_true(atomic_load(&st->n_prefill) >= 8 * (N - 1));
    child_drop(&c);
}

static void test_a_wrong_setting_is_named(void **state)
{
    need_program();
    struct child c;
    struct msg_text text;
    struct err e = ERR_INIT;
    child_set(&c, "queue=4 kv_tipe=q8");
    uint64_t end = clock_now_us() + LONG_US;
    while (!channel_recv(c.channel, &c.type, &c.b, &e)) {
        assert_true(clock_now_us() < end);
        channel_wait(c.channel, 20000);
    }
    assert_int_equal(c.type, MSG_ENGINE_FAILED);
    MUST(msg_text_get(&text, c.b.data, c.b.len, &e), e);
    assert_int_equal(text.code, ERR_CONFIG);
    assert_non_null(strstr(text.text, "kv_tipe: unknown engine setting"));
    child_drop(&c);
}

/* Tens of thousands of refusals and nobody who reads them: the engine must not wait for ever, nor hold them in memory. */
static void test_a_worker_that_does_not_read_ends_the_engine(void **state)
{
    need_program();
    struct child c;
    struct msg_engine_ready ready;
    static struct job j;
    struct buf b;
    struct err e = ERR_INIT;
    int status = 0;
    child_serve(&c, tiny_path, "256");
    child_ready(&c, &ready);
    job_for_child(&j, 0, PROMPT, 8, 3);
    j.submit.epoch = EPOCH - 1;
    buf_init(&b, 4096);
    uint64_t end = clock_now_us() + LONG_US;
    while (waitpid(c.pid, &status, WNOHANG) == 0) {
        assert_true(clock_now_us() < end);
        buf_reset(&b);
        j.submit.attempt.generation++;
        msg_submit_put(&b, &j.submit);
        int rc = channel_send(c.channel, MSG_SUBMIT, b.data, b.len, &e);
        if (rc == ERR_AGAIN)
            clock_sleep_us(10000);
        else
            MUST(rc, e);
    }
    c.pid = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == err_exit_code(ERR_TIMEOUT));
    buf_fini(&b);
    child_drop(&c);
}

/* --- the stub -------------------------------------------------------------------------------------------- */

/* A worker in miniature: starts an engine, tells its pid, then waits to be killed. */
static void miniature_worker(int tell)
{
    struct child c;
    struct msg_engine_ready ready;
    child_serve(&c, tiny_path, "256");
    child_ready(&c, &ready);
    if (write(tell, &c.pid, sizeof c.pid) != sizeof c.pid)
        _exit(1);
    for (;;)
        pause();
}

static void test_the_engine_dies_with_its_parent(void **state)
{
    need_program();
    int p[2];
    pid_t engine = 0;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    /* the orphan becomes ours, so that its end can be waited for */
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t worker = fork();
    assert_true(worker >= 0);
    if (!worker)
        miniature_worker(p[1]);
    close(p[1]);
    assert_int_equal(read(p[0], &engine, sizeof engine), sizeof engine);
    assert_int_equal(kill(engine, 0), 0);
    kill(worker, SIGKILL);
    int status;
    assert_int_equal(waitpid(worker, &status, 0), worker);
    struct child c = {.pid = engine};
    assert_true(child_ended(&c, &status));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(p[0]);
}

/* Run a shell command through the stub and return what it printed. */
static void stub_output(const char *script, char *out, size_t cap)
{
    struct child c;
    int p[2], status;
    char command[4096];
    assert_int_equal(pipe2(p, 0), 0);
    /* descriptor 1 is kept by the stub, everything over 7 is not */
    snprintf(command, sizeof command, "%s", script);
    char *argv[] = {"/bin/sh", "-c", command, NULL};
    int saved = dup(1);
    fflush(stdout);
    dup2(p[1], 1);
    child_spawn(&c, argv);
    dup2(saved, 1);
    close(saved);
    close(p[1]);
    size_t n = 0;
    for (ssize_t got; n < cap - 1 && (got = read(p[0], out + n, cap - 1 - n)) > 0;)
        n += (size_t)got;
    out[n] = 0;
    close(p[0]);
    assert_true(child_ended(&c, &status));
    assert_int_equal(status, 0);
    child_drop(&c);
}

static void test_extra_descriptors_are_closed(void **state)
{
    need_program();
    int leak[2], high;
    char out[4096];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, leak), 0); /* not close-on-exec */
    high = fcntl(leak[0], F_DUPFD, 500);
    assert_true(high >= 500);
    /* "; true" keeps the shell from becoming ls, whose own descriptor would be among them */
    stub_output("ls /proc/$$/fd; true", out, sizeof out);
    assert_string_equal(out, "0\n1\n2\n3\n4\n5\n6\n7\n");
    close(leak[0]);
    close(leak[1]);
    close(high);
}

static void test_the_ranks_go_first(void **state)
{
    need_program();
    char out[64];
    int ours = getpriority(PRIO_PROCESS, 0);
    stub_output("nice", out, sizeof out);
    if (ours < 19)
        assert_true(atoi(out) > ours);
}

static void test_the_environment_is_cleaned(void **state)
{
    need_program();
    static const char *const GONE[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "UCX_TLS",
                                       "SLURM_JOB_ID"};
    static const char *const KEPT[] = {"CUDA_VISIBLE_DEVICES", "EXASERVE_TEST_MARK", "SLURMY"};
    static char out[1 << 16];
    for (size_t i = 0; i < 4; i++)
        setenv(GONE[i], "mark-gone", 1);
    for (size_t i = 0; i < 3; i++)
        setenv(KEPT[i], "mark-kept", 1);
    stub_output("env", out, sizeof out);
    assert_null(strstr(out, "mark-gone"));
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(strstr(out, KEPT[i]));
        unsetenv(KEPT[i]);
    }
    assert_non_null(strstr(out, "PATH="));
    for (size_t i = 0; i < 4; i++)
        unsetenv(GONE[i]);
}

static void test_the_stub_leaves_when_its_parent_changed(void **state)
{
    need_program();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        execl(program, program, "--stub", "1", "8", "--", "/bin/true", NULL); /* 1 is not us */
        _exit(99);
    }
    struct child c = {.pid = pid};
    int status;
    assert_true(child_ended(&c, &status));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == err_exit_code(ERR_PEER));
}

static void test_wrong_command_lines(void **state)
{
    need_program();
    static char *const LINES[][8] = {
        {program, NULL},
        {program, "--serve", "--image", "x", NULL},
        {program, "--serve", "--imagine", "x", NULL},
        {program, "--stub", "12", "8", "/bin/true", NULL},
        {program, "--stub", "12x", "8", "--", "/bin/true", NULL},
    };
    for (size_t i = 0; i < sizeof LINES / sizeof LINES[0]; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            execv(program, LINES[i]);
            _exit(99);
        }
        struct child c = {.pid = pid};
        int status;
        assert_true(child_ended(&c, &status));
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    }
}

static int make_tiny(void **state)
{
    tiny_image(tiny_path, &(struct tiny){.type = TENSOR_Q8_0});
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_tokens_come_through_the_channel),
        cmocka_unit_test(test_refused_requests_are_answered),
        cmocka_unit_test(test_sigterm_finishes_what_runs),
        cmocka_unit_test(test_cancel_through_the_channel),
        cmocka_unit_test(test_a_failed_start_has_last_words),
        cmocka_unit_test(test_settings_get_there),
        cmocka_unit_test(test_a_wrong_setting_is_named),
        cmocka_unit_test(test_a_worker_that_does_not_read_ends_the_engine),
        cmocka_unit_test(test_the_engine_dies_with_its_parent),
        cmocka_unit_test(test_extra_descriptors_are_closed),
        cmocka_unit_test(test_the_ranks_go_first),
        cmocka_unit_test(test_the_environment_is_cleaned),
        cmocka_unit_test(test_the_stub_leaves_when_its_parent_changed),
        cmocka_unit_test(test_wrong_command_lines),
    };
    return cmocka_run_group_tests_name("engine_process", tests, make_tiny, NULL);
}

/* The node's image as its worker sees it: asked for, complete, looked at when an engine dies, fetched again. The test is the mover. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks/store.h"
#include "ranks_fixture.h"

static uint32_t n_ready, n_lost;
static char lost_why[MSG_TEXT_BYTES];

static void on_ready(void *ctx)
{
    n_ready++;
}

static void on_lost(void *ctx, const char *why)
{
    n_lost++;
    snprintf(lost_why, sizeof lost_why, "%s", why);
}

static struct store *make(struct daemon *d)
{
    struct store *s;
    struct err e = ERR_INIT;
    struct store_events ev = {.ready = on_ready, .lost = on_lost};
    n_ready = n_lost = 0;
    assert_int_equal(store_create(&s, d, &ev, &e), 0);
    return s;
}

static void tell_model(struct store *s)
{
    struct msg_model m = {.deployment = 1,
                          .index = (const uint8_t *)"index",
                          .index_bytes = 5,
                          .meta = (const uint8_t *)"meta",
                          .meta_bytes = 4};
    struct buf b;
    buf_init(&b, 4096);
    msg_model_put(&b, &m);
    store_message(s, MSG_MODEL, b.data, b.len);
    buf_fini(&b);
}

/* What the mover was given; NULL: nothing. */
static struct task *given(struct daemon *d, enum task_kind kind)
{
    struct task *t = queue_pop(d->to_mover);
    if (t)
        assert_int_equal(t->kind, kind);
    return t;
}

static void answer(struct store *s, struct task *t, const char *path, int code)
{
    assert_non_null(t);
    if (t->kind != TASK_CHECK_IMAGE)
        snprintf(t->path, sizeof t->path, "%s", path);
    t->have.digest[0] = 7;
    if (code)
        err_set(&t->err, code, "no such file");
    store_task(s, t);
    task_destroy(t);
}

static void test_fetched_again_when_it_is_lost(void **state)
{
    struct test_world *w = world_make();
    struct daemon *d = w->d[WORLD_FIRST_WORKER];
    struct store *s = make(d);
    store_check(s); /* there is none yet */
    assert_null(given(d, TASK_CHECK_IMAGE));
    tell_model(s);
    answer(s, given(d, TASK_OPEN_CACHE), "", 0);
    assert_int_equal(n_ready, 0);
    assert_string_equal(store_path(s), "");
    tell_model(s);
    answer(s, given(d, TASK_OPEN_CACHE), "/c/image", 0);
    assert_int_equal(n_ready, 1);
    assert_string_equal(store_path(s), "/c/image");
    assert_int_equal(store_digest(s)[0], 7);
    store_scheduler_up(s);
    assert_null(given(d, TASK_OPEN_CACHE));

    store_check(s);
    store_check(s); /* one look at a time */
    struct task *t = given(d, TASK_CHECK_IMAGE);
    assert_string_equal(t->path, "/c/image");
    answer(s, t, "", 0);
    assert_null(given(d, TASK_CHECK_IMAGE));
    assert_int_equal(n_lost, 0);

    store_check(s);
    answer(s, given(d, TASK_CHECK_IMAGE), "", ERR_SYS);
    assert_int_equal(n_lost, 1);
    assert_string_equal(lost_why, store_trouble(s));
    assert_non_null(strstr(lost_why, "no such file"));
    assert_string_equal(store_path(s), "");
    t = given(d, TASK_OPEN_CACHE);
    assert_int_equal(t->a.len, 5);
    assert_int_equal(t->b.len, 4);
    answer(s, t, "", 0);   /* incomplete: the scheduler is told, and lost with its link */
    store_scheduler_up(s); /* so it is told again */
    answer(s, given(d, TASK_OPEN_CACHE), "/c/image", 0);
    assert_int_equal(n_ready, 2);
    assert_string_equal(store_trouble(s), "");
    store_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetched_again_when_it_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What an engine makes of the memory that there is: its parts are planned together, by numbers that the test pretends. */
#include "engine_support.h"

#include "engine/backend.h"

enum { MIB = 1 << 20 };

static uint64_t pretended_bytes;
static uint64_t pretended_memory(void)
{
    return pretended_bytes;
}

static struct engine_info info_of(const struct engine_config *c, uint64_t available)
{
    struct backend b = BACKEND_CPU;
    struct err e = ERR_INIT;
    struct engine_info info;
    struct engine *g;
    b.memory_available = pretended_memory;
    pretended_bytes = available;
    MUST(engine_local_create(&g, &b, c, &e), e);
    engine_info(g, &info);
    engine_destroy(g);
    return info;
}

static void test_a_fraction_leaves_room_for_the_weights(void **state)
{
    char path[4096];
    tiny_image(path, &(struct tiny){.type = TENSOR_Q4_1});
    struct engine_config c = {.kind = "cpu", .image_path = path, .n_slots = 2};
    struct engine_config least = c, all = c;
    least.kv_bytes = 17 * 4096;
    all.memory_permille = 1000;
    struct engine_info a = info_of(&least, UINT64_MAX);
    struct engine_info b = info_of(&all, a.memory_bytes + 8 * MIB);
    assert_true(b.kv_total_tokens > a.kv_total_tokens);
    assert_true(b.memory_bytes > a.memory_bytes + 6 * MIB);
    assert_true(b.memory_bytes < a.memory_bytes + 8 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fraction_leaves_room_for_the_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

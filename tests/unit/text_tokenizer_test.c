/* text_tokenizer_test.c - byte-level BPE over small vocabularies: merges, special tokens,
 * limits, refusals, hostile input. */
#include "base/clock.h"
#include "text/pretok.h"
#include "text/prompt.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* ---- a vocabulary under construction: 256 bytes, then one token for each merge, then special
 * ones ---- */

enum { VOCAB_MAX = 600, TEXT_MAX = 64, LETTERS = 256 };

struct vocab {
    struct tokenizer_data d;
    char *tokens[VOCAB_MAX], *merges[VOCAB_MAX];
    uint8_t types[VOCAB_MAX];
};

static char *dup_text(const char *s)
{
    char *p = strdup(s);
    assert_non_null(p);
    return p;
}

static uint32_t vocab_add(struct vocab *v, const char *text, uint8_t type)
{
    uint32_t id = v->d.n_tokens++;
    assert_true(id < VOCAB_MAX);
    v->tokens[id] = dup_text(text);
    v->types[id] = type;
    return id;
}

static uint32_t vocab_merge(struct vocab *v, const char *left, const char *right)
{
    char text[2 * TEXT_MAX];
    snprintf(text, sizeof text, "%s %s", left, right);
    v->merges[v->d.n_merges++] = dup_text(text);
    snprintf(text, sizeof text, "%s%s", left, right);
    return vocab_add(v, text, TOKEN_NORMAL);
}

static void vocab_init(struct vocab *v, const char *pre)
{
    *v = (struct vocab){.d = {.model = "gpt2", .bos = -1, .eos = -1, .unk = -1, .pad = -1}};
    snprintf(v->d.pre, sizeof v->d.pre, "%s", pre);
    v->d.tokens = v->tokens;
    v->d.types = v->types;
    v->d.merges = v->merges;
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < LETTERS; b++) {
        char text[5] = "";
        bool own = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        utf8_encode(own ? b : next++, text);
        vocab_add(v, text, TOKEN_NORMAL);
    }
}

static void vocab_fini(struct vocab *v)
{
    for (uint32_t i = 0; i < v->d.n_tokens; i++)
        free(v->tokens[i]);
    for (uint32_t i = 0; i < v->d.n_merges; i++)
        free(v->merges[i]);
}

static struct tokenizer *vocab_create(struct vocab *v)
{
    struct tokenizer *t = NULL;
    struct err e = ERR_INIT;
    if (tokenizer_create(&t, &v->d, &e) != 0)
        fail_msg("%s", e.text);
    return t;
}

static void expect_ids(const struct tokenizer *t, const char *text, bool special, size_t n,
                       const uint32_t *want)
{
    struct token_vec ids = {0};
    struct err e = ERR_INIT;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), special, SIZE_MAX, &ids, &e), 0);
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids.ids[i], want[i]);
    token_vec_fini(&ids);
}
#define EXPECT(t, text, special, ...)                                                              \
    expect_ids(t, text, special, sizeof((uint32_t[]){__VA_ARGS__}) / 4, (uint32_t[]){__VA_ARGS__})

/* ---- merging ---- */

static void test_lowest_rank_first(void **state)
{
    struct vocab v;
    vocab_init(&v, "gpt-2");
    uint32_t bc = vocab_merge(&v, "b", "c");
    uint32_t ab = vocab_merge(&v, "a", "b");
    uint32_t aa = vocab_merge(&v, "a", "a");
    struct tokenizer *t = vocab_create(&v);
    EXPECT(t, "abc", false, 'a', bc);
    EXPECT(t, "abab", false, ab, ab);
    EXPECT(t, "aaa", false, aa, 'a'); /* the leftmost of equal ranks */
    EXPECT(t, "aaaab", false, aa, 'a', ab);
    EXPECT(t, "ab bc", false, ab, ' ', bc);
    tokenizer_destroy(t);
    vocab_fini(&v);
}

/* The obvious algorithm: look for the best pair, merge it, start again. */
static size_t merge_slowly(const struct vocab *v, char (*parts)[TEXT_MAX], size_t n)
{
    for (;;) {
        size_t best = n;
        uint32_t best_rank = v->d.n_merges;
        for (size_t i = 0; i + 1 < n; i++) {
            char pair[2 * TEXT_MAX];
            snprintf(pair, sizeof pair, "%.62s %.62s", parts[i], parts[i + 1]);
            for (uint32_t r = 0; r < best_rank; r++)
                if (strcmp(v->merges[r], pair) == 0) {
                    best = i;
                    best_rank = r;
                }
        }
        if (best == n)
            return n;
        char both[TEXT_MAX];
        snprintf(both, sizeof both, "%.31s%.31s", parts[best], parts[best + 1]);
        memcpy(parts[best], both, sizeof both);
        memmove(parts + best + 1, parts + best + 2, (n - best - 2) * sizeof *parts);
        n--;
    }
}

/* One of four letters, or a token that an earlier merge made. */
static void pick_part(const struct vocab *v, char out[TEXT_MAX])
{
    uint32_t made = v->d.n_tokens - LETTERS;
    uint32_t id =
        made && rand() % 2 ? LETTERS + (uint32_t)rand() % made : 'a' + (uint32_t)rand() % 4;
    snprintf(out, TEXT_MAX, "%s", v->tokens[id]);
}

static void test_same_as_the_obvious_algorithm(void **state)
{
    struct vocab v;
    vocab_init(&v, "gpt-2");
    srand(7);
    for (int i = 0; i < 40; i++) { /* random merges of what is there */
        char left[TEXT_MAX], right[TEXT_MAX], both[2 * TEXT_MAX];
        pick_part(&v, left);
        pick_part(&v, right);
        snprintf(both, sizeof both, "%s%s", left, right);
        bool known = strlen(both) >= TEXT_MAX / 4;
        for (uint32_t k = 0; k < v.d.n_tokens; k++)
            known = known || strcmp(v.tokens[k], both) == 0;
        if (known)
            i--;
        else
            vocab_merge(&v, left, right);
    }
    struct tokenizer *t = vocab_create(&v);
    for (int round = 0; round < 300; round++) {
        char text[TEXT_MAX], parts[TEXT_MAX][TEXT_MAX];
        size_t n = 1 + (size_t)rand() % 50;
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)('a' + rand() % 4);
            snprintf(parts[i], TEXT_MAX, "%c", text[i]);
        }
        struct token_vec ids = {0};
        assert_int_equal(tokenizer_encode(t, text, n, false, SIZE_MAX, &ids, NULL), 0);
        size_t want = merge_slowly(&v, parts, n);
        assert_int_equal(ids.n, want);
        for (size_t i = 0; i < want; i++)
            assert_string_equal(v.tokens[ids.ids[i]], parts[i]);
        token_vec_fini(&ids);
    }
    tokenizer_destroy(t);
    vocab_fini(&v);
}

/* ---- pre-tokenizers against PCRE2 running the published expression ---- */

static const struct {
    const char *preset, *expression;
} EXPRESSIONS[] = {
    {"gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {"llama-bpe", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"qwen2", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
              " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"tekken",
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
     "\\p{N}|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

static void compare_pieces(pcre2_code *re, pcre2_match_data *m, const struct pretok_rules *rules,
                           const char *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        int rc = pcre2_match(re, (PCRE2_SPTR)p + at, n - at, 0, PCRE2_ANCHORED, m, NULL);
        assert_true(rc > 0);
        size_t len = pretok_next(rules, p + at, n - at);
        if (len != pcre2_get_ovector_pointer(m)[1])
            fail_msg("\"%s\" at %zu: %zu bytes, expected %zu", p, at, len,
                     pcre2_get_ovector_pointer(m)[1]);
        at += len;
    }
}

static void test_pieces_as_the_expression(void **state)
{
    static const char *const PARTS[] = {
        "a",      "Zq",     "'s", "'",   "'ll",  "'LL",    " ",      "  ",     "\n",
        "\t",     "1",      "42", "!",   "-",    "é",      "½",      "ǅ",      "/",
        "\u00a0", "\u3000", "世", "😀",   "\r\n", "'ve",    "\u0301", "_",      "ABc",
        "ʰ",      "\r",     "'S", "123", "1234", "\u017f", "Ж",      "'\u017f"};
    for (size_t k = 0; k < sizeof EXPRESSIONS / sizeof EXPRESSIONS[0]; k++) {
        const char *text = EXPRESSIONS[k].expression;
        const struct pretok_rules *rules = pretok_find(text, strlen(text));
        assert_non_null(rules);
        assert_string_equal(pretok_preset(EXPRESSIONS[k].preset)->expression[0], text);
        int code;
        PCRE2_SIZE offset;
        pcre2_code *re = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
        assert_non_null(re);
        pcre2_match_data *m = pcre2_match_data_create(4, NULL);
        srand(11);
        for (int round = 0; round < 2000; round++) {
            char line[256] = "";
            for (int i = rand() % 12; i >= 0; i--)
                strcat(line, PARTS[(size_t)rand() % (sizeof PARTS / sizeof PARTS[0])]);
            compare_pieces(re, m, rules, line, strlen(line));
        }
        pcre2_match_data_free(m);
        pcre2_code_free(re);
    }
    assert_null(pretok_find("\\s+", 3));
}

static void test_digits(void **state)
{
    struct vocab v;
    vocab_init(&v, "smollm");
    uint32_t twelve = vocab_merge(&v, "1", "2");
    uint32_t spaces = vocab_merge(&v, "\xC4\xA0", "\xC4\xA0");
    struct tokenizer *t = vocab_create(&v);
    EXPECT(t, "12", false, '1', '2');           /* each number stands alone */
    EXPECT(t, "a  1", false, 'a', spaces, '1'); /* look-ahead ends at the number */
    EXPECT(t, "a  b", false, 'a', ' ', ' ', 'b');
    tokenizer_destroy(t);
    snprintf(v.d.pre, sizeof v.d.pre, "gpt-2");
    t = vocab_create(&v);
    EXPECT(t, "12", false, twelve);
    tokenizer_destroy(t);
    vocab_fini(&v);
}

/* ---- special tokens ---- */

static void test_special_tokens(void **state)
{
    struct vocab v;
    vocab_init(&v, "smollm");
    uint32_t end = vocab_add(&v, "<|im_end|>", TOKEN_CONTROL);
    uint32_t shorter = vocab_add(&v, "<|im", TOKEN_CONTROL);
    uint32_t user = vocab_add(&v, "<tool>", TOKEN_USER_DEFINED);
    uint32_t unused = vocab_add(&v, "<unused>", TOKEN_UNUSED);
    v.d.eos = (int32_t)end;
    struct tokenizer *t = vocab_create(&v);
    EXPECT(t, "a<|im_end|>b", true, 'a', end, 'b');
    EXPECT(t, "<|im_en", true, shorter, '_', 'e', 'n'); /* the longest that is there */
    EXPECT(t, "<|<|im_end|>", true, '<', '|', end);
    EXPECT(t, "<tool>x", true, user, 'x');
    EXPECT(t, "<|im", false, '<', '|', 'i', 'm'); /* ordinary text when not asked for */
    EXPECT(t, "<tool>", false, user);             /* no control token: always a token of its own */
    EXPECT(t, "<unused>", true, '<', 'u', 'n', 'u', 's', 'e', 'd', '>');

    size_t n;
    assert_int_equal((tokenizer_bytes(t, end, false, &n), n), 0);
    assert_memory_equal(tokenizer_bytes(t, end, true, &n), "<|im_end|>", 10);
    assert_int_equal(n, 10);
    assert_memory_equal(tokenizer_bytes(t, user, false, &n), "<tool>", 6);
    assert_memory_equal(tokenizer_bytes(t, unused, false, &n), "<unused>", 8);
    assert_memory_equal(tokenizer_bytes(t, 0xE9, false, &n), "\xE9", 1);
    assert_null(tokenizer_bytes(t, v.d.n_tokens, true, &n));
    assert_true(tokenizer_is_eog(t, end) && !tokenizer_is_eog(t, user));
    tokenizer_destroy(t);
    vocab_fini(&v);
}

static void test_bytes_without_token(void **state)
{
    struct vocab v;
    vocab_init(&v, "smollm");
    free(v.tokens['!']);
    v.tokens['!'] = dup_text("taken");
    uint32_t dashes = vocab_merge(&v, "-", "-");
    struct tokenizer *t = vocab_create(&v);
    EXPECT(t, "a!b", false, 'a', 'b');
    EXPECT(t, "-!-", false, dashes); /* dropped before anything merges, as in the reference */
    EXPECT(t, "--", false, dashes);
    struct token_vec none = {0};
    assert_int_equal(tokenizer_encode(t, "!!!", 3, true, 0, &none, NULL), 0);
    assert_int_equal(none.n, 0);
    token_vec_fini(&none);
    tokenizer_destroy(t);
    vocab_fini(&v);
}

/* A token that is not all of the alphabet is written whole; steps may leave nothing of a text. */
static void test_odd_files(void **state)
{
    static const char TEXT[] = "\xC4\xA0\xE4\xB8\x96"; /* the alphabet's space, a foreign letter */
    struct tok_step steps[] = {
        {.kind = TOK_METASPACE, .text = "", .to = ""},
        {.kind = TOK_BYTE_LEVEL, .flags = TOK_PREFIX_SPACE, .text = "", .to = ""},
        {.kind = TOK_DEC_BYTE_LEVEL, .text = "", .to = ""}};
    struct vocab v;
    vocab_init(&v, "smollm");
    uint32_t id = vocab_add(&v, TEXT, TOKEN_NORMAL);
    v.d.steps = steps, v.d.n_steps = 3;
    struct tokenizer *t = vocab_create(&v);
    struct token_vec ids = {0};
    size_t n;
    assert_string_equal(tokenizer_bytes(t, id, false, &n), TEXT);
    assert_int_equal(tokenizer_encode(t, "   ", 3, true, 10, &ids, NULL), 0);
    assert_int_equal(ids.n, 0);
    tokenizer_destroy(t);
    vocab_fini(&v);
}

static void test_plain_prompt_begins_with_bos(void **state)
{
    struct vocab v;
    vocab_init(&v, "smollm");
    v.d.bos = (int32_t)vocab_add(&v, "<s>", TOKEN_CONTROL);
    v.d.add_bos = true;
    struct tokenizer *t = vocab_create(&v);
    struct token_vec ids = {0};
    struct err e = ERR_INIT;
    assert_int_equal(prompt_from_text(t, "a<s>", 4, 3, &ids, &e), 0);
    assert_int_equal(ids.n, 3);
    assert_true(ids.ids[0] == 256 && ids.ids[1] == 'a' && ids.ids[2] == 256);
    assert_int_equal(prompt_from_text(t, "ab", 2, 2, &ids, &e), ERR_LIMIT);
    assert_int_equal(ids.n, 3);
    token_vec_fini(&ids);
    tokenizer_destroy(t);
    vocab_fini(&v);
}

/* ---- limits and refusals ---- */

static void test_limits(void **state)
{
    struct vocab v;
    vocab_init(&v, "smollm");
    struct tokenizer *t = vocab_create(&v);
    struct token_vec ids = {0};
    struct err e = ERR_INIT;
    assert_int_equal(tokenizer_encode(t, "abc", 3, false, 3, &ids, &e), 0);
    assert_int_equal(tokenizer_encode(t, "abcd", 4, false, 3, &ids, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "3"));
    assert_int_equal(ids.n, 3); /* what was there before stays, nothing of the refused text does */
    assert_int_equal(tokenizer_encode(t, "", 0, false, 0, &ids, &e), 0);
    assert_int_equal(tokenizer_encode(t, "ab\xC3(", 4, false, 99, &ids, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "byte 2"));
    assert_int_equal(tokenizer_encode(t, "\xED\xA0\x80", 3, true, 99, &ids, &e), ERR_FORMAT);
    assert_int_equal(tokenizer_encode(t, "x\xF0\x9F\x98", 4, true, 99, &ids, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "byte 1"));
    token_vec_fini(&ids);
    tokenizer_destroy(t);
    vocab_fini(&v);
}

static void expect_refused(struct vocab *v, const char *named)
{
    struct tokenizer *t = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(tokenizer_create(&t, &v->d, &e), ERR_FORMAT);
    assert_null(t);
    if (!strstr(e.text, named))
        fail_msg("\"%s\" does not name \"%s\"", e.text, named);
    vocab_fini(v);
}

static void test_refusals(void **state)
{
    struct vocab v;
    vocab_init(&v, "poro-chat");
    expect_refused(&v, "poro-chat");
    vocab_init(&v, "smollm");
    snprintf(v.d.model, sizeof v.d.model, "rwkv");
    expect_refused(&v, "rwkv");
    vocab_init(&v, "smollm");
    snprintf(v.d.model, sizeof v.d.model, "bert");
    expect_refused(&v, "unknown text");
    vocab_init(&v, "smollm");
    v.d.n_eog = 1;
    v.d.eog[0] = 256;
    expect_refused(&v, "end of generation token 256");
    vocab_init(&v, "smollm");
    vocab_add(&v, "a", TOKEN_NORMAL);
    expect_refused(&v, "tokens 97 and 256");
    vocab_init(&v, "smollm");
    vocab_add(&v, "a\xFF", TOKEN_NORMAL);
    expect_refused(&v, "256 is not valid UTF-8");
    vocab_init(&v, "smollm");
    vocab_merge(&v, "a", "b");
    free(v.merges[0]);
    v.merges[0] = dup_text("ab");
    expect_refused(&v, "merge 0");
    vocab_init(&v, "smollm");
    vocab_merge(&v, "a", "b");
    free(v.merges[0]);
    v.merges[0] = dup_text("a c");
    expect_refused(&v, "the result");
    vocab_init(&v, "smollm");
    v.types[vocab_merge(&v, "a", "b")] = TOKEN_CONTROL;
    expect_refused(&v, "control token");
    vocab_init(&v, "smollm");
    v.d.eos = 256;
    expect_refused(&v, "eos 256");
    vocab_init(&v, "smollm");
    char *huge = malloc(1000);
    memset(huge, 'x', 999);
    huge[999] = 0;
    vocab_add(&v, huge, TOKEN_CONTROL);
    free(huge);
    expect_refused(&v, "special token 256");
}

/* A megabyte that is one piece must take about a second at the very most, sanitizers included. */
static void test_hostile_input(void **state)
{
    enum { N = 1 << 20, DEADLINE_US = 20000000 };
    struct vocab v;
    vocab_init(&v, "smollm");
    char letters[TEXT_MAX] = "a", spaces[TEXT_MAX] = "\xC4\xA0";
    for (int i = 0; i < 4; i++) { /* aa, aaaa, …: every position is a candidate at each level */
        vocab_merge(&v, letters, letters);
        vocab_merge(&v, spaces, spaces);
        snprintf(letters, sizeof letters, "%s", v.tokens[v.d.n_tokens - 2]);
        snprintf(spaces, sizeof spaces, "%s", v.tokens[v.d.n_tokens - 1]);
    }
    vocab_add(&v, "<|im_end|>", TOKEN_CONTROL);
    struct tokenizer *t = vocab_create(&v);
    char *text = malloc(N);
    static const char *const PATTERNS[] = {"a", " ", "aab", "\n", "<|im_en", "'", "\xE4\xB8\x96"};
    for (size_t p = 0; p < sizeof PATTERNS / sizeof PATTERNS[0]; p++) {
        size_t len = strlen(PATTERNS[p]), n = N / len * len;
        for (size_t i = 0; i < n; i++)
            text[i] = PATTERNS[p][i % len];
        struct token_vec ids = {0};
        uint64_t start = clock_now_us();
        assert_int_equal(tokenizer_encode(t, text, n, true, SIZE_MAX, &ids, NULL), 0);
        assert_true(clock_now_us() - start < DEADLINE_US);
        if (p == 0)
            assert_int_equal(ids.n, N / 16);
        token_vec_fini(&ids);
    }
    free(text);
    tokenizer_destroy(t);
    vocab_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowest_rank_first),
        cmocka_unit_test(test_same_as_the_obvious_algorithm),
        cmocka_unit_test(test_pieces_as_the_expression),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_bytes_without_token),
        cmocka_unit_test(test_odd_files),
        cmocka_unit_test(test_plain_prompt_begins_with_bos),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_hostile_input),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

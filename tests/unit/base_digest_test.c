/* base_digest_test.c - published vectors: SHA-256 from FIPS 180-2 appendix B, HMAC-SHA-256 from RFC 4231. */
#include "base/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void is_hex(const uint8_t sum[SHA256_BYTES], const char *hex)
{
    char got[SHA256_HEX];
    hex_encode(sum, SHA256_BYTES, got);
    assert_string_equal(got, hex);
}

static void sha256_vectors(void **state)
{
    uint8_t sum[SHA256_BYTES];
    sha256_of("", 0, sum);
    is_hex(sum, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_of("abc", 3, sum);
    is_hex(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    sha256_of(two, strlen(two), sum);
    is_hex(sum, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void sha256_in_parts(void **state)
{
    uint8_t sum[SHA256_BYTES];
    char block[1000];
    memset(block, 'a', sizeof block);
    struct sha256 *s = sha256_create();
    for (int i = 0; i < 1000; i++)
        sha256_update(s, block, sizeof block);
    sha256_end(s, sum);
    is_hex(sum, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    sha256_begin(s); /* used again */
    sha256_update(s, "a", 1);
    sha256_update(s, "", 0);
    sha256_update(s, "bc", 2);
    sha256_end(s, sum);
    is_hex(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_destroy(s);
    sha256_destroy(NULL);
}

static void hmac_vectors(void **state)
{
    uint8_t key[131], data[50], sum[SHA256_BYTES];
    memset(key, 0x0b, 20); /* case 1 */
    hmac_sha256(key, 20, "Hi There", 8, sum);
    is_hex(sum, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, sum); /* case 2 */
    is_hex(sum, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key); /* case 3 */
    memset(data, 0xdd, sizeof data);
    hmac_sha256(key, 20, data, sizeof data, sum);
    is_hex(sum, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    const char *longer = "Test Using Larger Than Block-Size Key - Hash Key First"; /* case 6 */
    hmac_sha256(key, sizeof key, longer, strlen(longer), sum);
    is_hex(sum, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void hexadecimal(void **state)
{
    uint8_t raw[4];
    assert_int_equal(hex_decode("00fFa5E1", raw, 4), 0);
    assert_memory_equal(raw, "\x00\xff\xa5\xe1", 4);
    static const char *const BAD[] = {"", "00ff", "00ffa5e1f", "00ffa5eg", "00ffa5 1", "0x00ffa5"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_int_equal(hex_decode(BAD[i], raw, 4), -1);
    assert_int_equal(hex_decode("", raw, 0), 0);
}

static void compares_and_draws(void **state)
{
    uint8_t a[64] = {0}, b[64] = {0};
    assert_true(digest_equal(a, b, sizeof a));
    b[63] = 1;
    assert_false(digest_equal(a, b, sizeof a));
    random_bytes(a, sizeof a);
    random_bytes(b, sizeof b);
    assert_false(digest_equal(a, b, sizeof a));
    random_bytes(a, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_vectors),     cmocka_unit_test(sha256_in_parts),
        cmocka_unit_test(hmac_vectors),       cmocka_unit_test(hexadecimal),
        cmocka_unit_test(compares_and_draws),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

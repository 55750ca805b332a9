/* digest.c - see digest.h. */
#include "base/digest.h"

#include "base/err.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct sha256 {
    EVP_MD_CTX *ctx;
};

struct sha256 *sha256_create(void)
{
    struct sha256 *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->ctx = EVP_MD_CTX_new();
    if (!s->ctx) {
        free(s);
        return NULL;
    }
    sha256_begin(s);
    return s;
}

void sha256_destroy(struct sha256 *s)
{
    if (!s)
        return;
    EVP_MD_CTX_free(s->ctx);
    free(s);
}

void sha256_begin(struct sha256 *s)
{
    CHECK(EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) == 1);
}

void sha256_update(struct sha256 *s, const void *data, size_t n)
{
    CHECK(EVP_DigestUpdate(s->ctx, data, n) == 1);
}

void sha256_end(struct sha256 *s, uint8_t out[SHA256_BYTES])
{
    CHECK(EVP_DigestFinal_ex(s->ctx, out, NULL) == 1);
}

void sha256_of(const void *data, size_t n, uint8_t out[SHA256_BYTES])
{
    CHECK(EVP_Digest(data, n, out, NULL, EVP_sha256(), NULL) == 1);
}

void hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t n,
                 uint8_t out[SHA256_BYTES])
{
    unsigned int len = SHA256_BYTES;
    CHECK(HMAC(EVP_sha256(), key, (int)key_bytes, data, n, out, &len) != NULL);
}

bool digest_equal(const void *a, const void *b, size_t n)
{
    return CRYPTO_memcmp(a, b, n) == 0;
}

void hex_encode(const void *data, size_t n, char *out)
{
    static const char DIGITS[] = "0123456789abcdef";
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = DIGITS[p[i] >> 4];
        out[2 * i + 1] = DIGITS[p[i] & 15];
    }
    out[2 * n] = 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int hex_decode(const char *hex, void *out, size_t n)
{
    uint8_t *p = out;
    if (strlen(hex) != 2 * n)
        return -1;
    for (size_t i = 0; i < n; i++) {
        int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return -1;
        p[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}

void random_bytes(void *out, size_t n)
{
    uint8_t *p = out;
    while (n) {
        ssize_t k = getrandom(p, n, 0);
        if (k < 0 && errno == EINTR)
            continue;
        CHECK(k > 0);
        p += k;
        n -= (size_t)k;
    }
}

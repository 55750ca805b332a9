/* digest.h - SHA-256, HMAC-SHA-256, hexadecimal and random bytes, over OpenSSL (SHA-NI where the CPU has it). */
#ifndef EXA_BASE_DIGEST_H
#define EXA_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 65 /* with NUL */ };

struct sha256;                      /* incremental */
struct sha256 *sha256_create(void); /* NULL: out of memory */
void sha256_destroy(struct sha256 *s);
void sha256_begin(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t n);
void sha256_end(struct sha256 *s, uint8_t out[SHA256_BYTES]);
void sha256_of(const void *data, size_t n, uint8_t out[SHA256_BYTES]);

void hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t n,
                 uint8_t out[SHA256_BYTES]);
bool digest_equal(const void *a, const void *b, size_t n); /* in constant time */

void hex_encode(const void *data, size_t n, char *out /* [2n+1] */);
int hex_decode(const char *hex, void *out, size_t n); /* 0; -1 unless exactly 2n hex digits */

void random_bytes(void *out, size_t n); /* from the kernel; aborts when it has none */

#endif

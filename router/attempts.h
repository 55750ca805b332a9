/* attempts.h - slots that name the running attempts: (slot, generation) → choice.
 *
 * A slot is used again with a new generation, so a late frame of an earlier attempt finds nobody.
 * Pure; bounded at creation.
 */
#ifndef EXA_ROUTER_ATTEMPTS_H
#define EXA_ROUTER_ATTEMPTS_H

#include "base/err.h"

#include <stdint.h>

struct choice;
struct attempts;

enum { ATTEMPT_NONE = UINT32_MAX };

int attempts_create(struct attempts **out, uint32_t capacity, struct err *e);
void attempts_destroy(struct attempts *a);
/* ERR_LIMIT: all slots are taken. */
int attempts_take(struct attempts *a, struct choice *c, uint32_t *slot, uint32_t *generation,
                  struct err *e);
void attempts_give(struct attempts *a, uint32_t slot);
/* NULL: nobody, or an older generation. */
struct choice *attempts_find(const struct attempts *a, uint32_t slot, uint32_t generation);

#endif

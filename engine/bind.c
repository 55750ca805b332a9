/* bind.c - see bind.h. hwloc's logical order puts processors of one core, cache and NUMA node side by side: a run of them is close together, and so
 * is the memory that their threads touch first (KV and scratch: the kernel's own policy places it there). */
#include "engine/bind.h"

#include <errno.h>
#include <hwloc.h>

bool bind_share(uint32_t n, uint32_t index, uint32_t count, uint32_t n_threads, uint32_t *first)
{
    uint64_t all = (uint64_t)count * n_threads;
    if (!n_threads || index >= count || all > n)
        return false;
    *first = n - (uint32_t)all + index * n_threads;
    return true;
}

/* The part of `allowed` that is ours, into `mine`; returns its size. */
static uint32_t part_of(hwloc_topology_t t, hwloc_const_bitmap_t allowed, hwloc_bitmap_t mine,
                        uint32_t index, uint32_t count, uint32_t n_threads)
{
    uint32_t n = (uint32_t)hwloc_bitmap_weight(allowed), first, at = 0;
    if (!bind_share(n, index, count, n_threads, &first))
        return 0;
    for (hwloc_obj_t pu = NULL; (pu = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PU, pu));) {
        if (!hwloc_bitmap_isset(allowed, pu->os_index))
            continue;
        if (at >= first && at < first + n_threads)
            hwloc_bitmap_set(mine, pu->os_index);
        at++;
    }
    return n_threads;
}

int bind_cores(uint32_t index, uint32_t count, uint32_t n_threads, uint32_t *bound, struct err *e)
{
    hwloc_topology_t t = NULL;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), mine = hwloc_bitmap_alloc();
    int rc = 0;
    *bound = 0;
    if (!allowed || !mine)
        rc = err_set(e, ERR_NOMEM, "processors: out of memory");
    else if (hwloc_topology_init(&t) || hwloc_topology_load(t) ||
             hwloc_get_cpubind(t, allowed, HWLOC_CPUBIND_PROCESS))
        rc = err_sys(e, errno, "processors of this process");
    else if (part_of(t, allowed, mine, index, count, n_threads)) {
        if (hwloc_set_cpubind(t, mine, HWLOC_CPUBIND_PROCESS))
            rc = err_sys(e, errno, "binding to %u processors", n_threads);
        else
            *bound = n_threads;
    }
    if (t)
        hwloc_topology_destroy(t);
    hwloc_bitmap_free(allowed);
    hwloc_bitmap_free(mine);
    return rc;
}

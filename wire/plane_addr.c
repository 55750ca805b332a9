/* plane_addr.c - see plane_addr.h. Layout in PROTOCOL.md, "Plane address". */
#include "wire/plane_addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ADDR_VERSION = 1, HOST_ID_BYTES = 48, IP_MAX_BYTES = 16 };

/* One boot of one kernel, one network namespace. Empty when the kernel tells neither: then nobody counts as near. */
static void host_id(char out[HOST_ID_BYTES])
{
    out[0] = 0;
    char boot[37] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t k = read(fd, boot, sizeof boot - 1);
    close(fd);
    struct stat st;
    if (k != (ssize_t)sizeof boot - 1 || stat("/proc/self/ns/net", &st) != 0)
        return;
    snprintf(out, HOST_ID_BYTES, "%.23s:%llx", boot, (unsigned long long)st.st_ino);
}

static const void *ip_of(const struct sockaddr *a, size_t *n)
{
    if (a->sa_family == AF_INET) {
        *n = 4;
        return &((const struct sockaddr_in *)a)->sin_addr;
    }
    *n = 16;
    return &((const struct sockaddr_in6 *)a)->sin6_addr;
}

static bool is_usable(const struct ifaddrs *i)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || !(i->ifa_flags & IFF_RUNNING))
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        return true;
    if (i->ifa_addr->sa_family != AF_INET6)
        return false;
    /* link-local addresses need a scope that means nothing on another host */
    return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
}

/* Is the interface in a list such as "eth0,mlx5_0:1"? */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && *p;) {
        size_t k = strcspn(p, ",");
        if (k == n && strncmp(p, name, n) == 0)
            return true;
        p += k;
        p += *p == ',';
    }
    return false;
}

/* A list that names no interface with an address (InfiniBand devices) limits nothing here. */
static const char *device_limit(const struct ifaddrs *all)
{
    const char *list = getenv("UCX_NET_DEVICES");
    for (const struct ifaddrs *i = all; list && i; i = i->ifa_next)
        if (is_usable(i) && is_listed(list, i->ifa_name))
            return list;
    return NULL;
}

int addr_publish(struct buf *out, uint16_t port4, uint16_t port6, struct err *e)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return err_sys(e, errno, "cannot list network interfaces");
    const char *limit = device_limit(all);
    char id[HOST_ID_BYTES];
    host_id(id);
    buf_u8(out, ADDR_VERSION);
    buf_str(out, id);
    size_t count_at = out->len;
    buf_u8(out, 0);
    uint8_t count = 0;
    for (const struct ifaddrs *i = all; i && count < ADDR_MAX; i = i->ifa_next) {
        if (!is_usable(i) || (limit && !is_listed(limit, i->ifa_name)))
            continue;
        uint16_t port = i->ifa_addr->sa_family == AF_INET ? port4 : port6;
        if (!port)
            continue;
        size_t n;
        const void *ip = ip_of(i->ifa_addr, &n);
        buf_u8(out, i->ifa_flags & IFF_LOOPBACK ? 1 : 0);
        buf_u16(out, port);
        buf_u8(out, (uint8_t)n);
        buf_put(out, ip, n);
        count++;
    }
    freeifaddrs(all);
    if (!buf_ok(out))
        return err_set(e, ERR_LIMIT, "no room for the plane's address");
    if (!count)
        return err_set(e, ERR_SYS, "no network interface with an address is up");
    out->data[count_at] = count;
    return 0;
}

/* Does one of our own interfaces stand in the network of this address? */
static bool is_on_link(const struct ifaddrs *all, int family, const uint8_t *ip, size_t n)
{
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!is_usable(i) || !i->ifa_netmask || i->ifa_addr->sa_family != family ||
            (i->ifa_flags & IFF_LOOPBACK))
            continue;
        size_t k;
        const uint8_t *ours = ip_of(i->ifa_addr, &k);
        const uint8_t *mask = ip_of(i->ifa_netmask, &k);
        size_t same = 0;
        while (same < n && ((ip[same] ^ ours[same]) & mask[same]) == 0)
            same++;
        if (same == n)
            return true;
    }
    return false;
}

/* 0 first; -1: not reachable from here. IPv4 before IPv6: more sites route it. */
static int rank_of(const struct ifaddrs *all, bool near, bool loopback, const uint8_t *ip, size_t n)
{
    int family = n == 4 ? AF_INET : AF_INET6;
    if (loopback)
        return near ? (n == 4 ? 0 : 1) : -1;
    if (is_on_link(all, family, ip, n))
        return n == 4 ? 2 : 3;
    return n == 4 ? 4 : 5;
}

static void sockaddr_fill(struct sockaddr_storage *out, const uint8_t *ip, size_t n, uint16_t port)
{
    memset(out, 0, sizeof *out);
    if (n == 4) {
        struct sockaddr_in *a = (struct sockaddr_in *)out;
        a->sin_family = AF_INET;
        a->sin_port = htons(port);
        memcpy(&a->sin_addr, ip, n);
    } else {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)out;
        a->sin6_family = AF_INET6;
        a->sin6_port = htons(port);
        memcpy(&a->sin6_addr, ip, n);
    }
}

int addr_choose(struct addr_list *out, const void *p, size_t n, struct err *e)
{
    struct {
        int rank;
        bool loopback;
        uint16_t port;
        size_t n;
        const uint8_t *ip;
    } got[ADDR_MAX];
    char theirs[HOST_ID_BYTES], ours[HOST_ID_BYTES];
    struct rd r = rd_make(p, n);
    uint8_t version = rd_u8(&r);
    rd_str(&r, theirs, sizeof theirs);
    unsigned count = rd_u8(&r);
    if (!rd_ok(&r) || version != ADDR_VERSION || count > ADDR_MAX)
        return err_set(e, ERR_FORMAT, "not a plane address of version %d (%zu bytes)", ADDR_VERSION,
                       n);
    for (unsigned i = 0; i < count; i++) {
        got[i].loopback = rd_u8(&r) != 0;
        got[i].port = rd_u16(&r);
        got[i].n = rd_u8(&r);
        got[i].ip = rd_bytes(&r, got[i].n);
        if (!rd_ok(&r) || (got[i].n != 4 && got[i].n != IP_MAX_BYTES) || !got[i].port)
            return err_set(e, ERR_FORMAT, "plane address: entry %u is malformed", i);
    }
    if (!rd_done(&r))
        return err_set(e, ERR_FORMAT, "plane address: %zu bytes left over", rd_left(&r));
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return err_sys(e, errno, "cannot list network interfaces");
    host_id(ours);
    bool near = ours[0] && strcmp(ours, theirs) == 0;
    for (unsigned i = 0; i < count; i++)
        got[i].rank = rank_of(all, near, got[i].loopback, got[i].ip, got[i].n);
    freeifaddrs(all);
    out->n = 0;
    for (int rank = 0; rank <= 5; rank++)
        for (unsigned i = 0; i < count; i++)
            if (got[i].rank == rank)
                sockaddr_fill(&out->a[out->n++], got[i].ip, got[i].n, got[i].port);
    if (!out->n)
        return err_set(e, ERR_PEER, "none of %u published addresses can be reached from here",
                       count);
    return 0;
}

socklen_t addr_len(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

void addr_text(const struct sockaddr_storage *a, char out[ADDR_TEXT_BYTES])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    size_t n;
    inet_ntop(a->ss_family, ip_of((const struct sockaddr *)a, &n), ip, sizeof ip);
    if (a->ss_family == AF_INET)
        snprintf(out, ADDR_TEXT_BYTES, "%s:%u", ip,
                 ntohs(((const struct sockaddr_in *)a)->sin_port));
    else
        snprintf(out, ADDR_TEXT_BYTES, "[%s]:%u", ip,
                 ntohs(((const struct sockaddr_in6 *)a)->sin6_port));
}

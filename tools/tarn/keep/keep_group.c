/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The groups of `tarn run` in which kept pools count (run/group.h). A pool counts in the group of
 * the process that has it or had it last; if that process is in none, in the owner's own, if there
 * is one. The owner has a slot in each of these groups, and counts there what no process counts. A
 * process under `tarn run` counts its pools itself while it lives. The owner has a claim on its
 * slot then, and takes the count over when the process has ended.
 *
 * The locks of slots and claims are the open file's of the group. A service manager holds that file
 * too, beside the pools' descriptors. So what the owner counts stays counted between a kill of the
 * owner and its next process, which gets the open file, and ends when the manager gives up the
 * pools.
 *
 * Owns the list of groups. One thread. */
#include "keep/keep.h"
#include "keep/keep_store.h"
#include "launch/group_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How often the owner looks for the end of a process that counts a pool: for a second after a
 * connection has ended, since the kernel closes a process's files one by one, and otherwise. */
enum { LOOK_MS = 20, SELDOM_MS = 1000 };

struct keep_group {
    struct keep_group *next;
    struct group_file file;
    unsigned slot;               /* the owner's */
    uint64_t used[BOOK_DEVICES]; /* as written there */
};

static struct keep_group *groups;
static int64_t often_until; /* ms */

static size_t slot_at(unsigned slot)
{
    return offsetof(struct group, slot) + slot * sizeof(struct group_slot);
}

static bool write_word(const struct keep_group *group, size_t offset, uint64_t word)
{
    return pwrite(group->file.file, &word, sizeof word, (off_t)offset) == (ssize_t)sizeof word;
}

/* The process of a slot; 0: none. */
static uint64_t process_of(const struct keep_group *group, unsigned slot)
{
    uint64_t process = 0;
    size_t at = slot_at(slot) + offsetof(struct group_slot, process);
    bool whole = pread(group->file.file, &process, sizeof process, (off_t)at) == sizeof process;
    return whole ? process : 0;
}

/* Joining -------------------------------------------------------------------------------------- */

/* Maps a group for changes that meet those of other processes. It is unmapped at once: another
 * process of the user may cut the file short. NULL if it is too short. */
static struct group *map(const struct keep_group *group)
{
    struct stat about;
    if (fstat(group->file.file, &about) != 0 || (size_t)about.st_size < sizeof(struct group))
        return NULL;
    void *mapped =
        mmap(NULL, sizeof(struct group), PROT_READ | PROT_WRITE, MAP_SHARED, group->file.file, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static bool sign(const struct keep_group *group)
{
    return write_word(group, slot_at(group->slot) + offsetof(struct group_slot, process),
                      (uint64_t)getpid());
}

static bool take_slot(struct keep_group *group)
{
    const struct group_slot nothing = {0};
    unsigned i = 0;
    while (i < GROUP_SLOTS && !group_take(group->file.file, i))
        i++;
    struct group *mapped = i < GROUP_SLOTS ? map(group) : NULL;
    if (!mapped)
        return false;
    uint32_t slots = atomic_load(&mapped->slots);
    while (slots <= i && !atomic_compare_exchange_weak(&mapped->slots, &slots, i + 1))
        ;
    munmap(mapped, sizeof *mapped);
    group->slot = i;
    /* it may still have the figures of a process that has ended */
    return pwrite(group->file.file, &nothing, sizeof nothing, (off_t)slot_at(i)) ==
               (ssize_t)sizeof nothing &&
           sign(group);
}

/* The name in the path of a group's file; NULL: it is none. */
static const char *name_in(const char *path)
{
    static const char start[] = "/tarn-group.";
    const char *slash = strrchr(path, '/');
    if (!slash || strncmp(slash, start, sizeof start - 1) != 0)
        return NULL;
    const char *user = slash + sizeof start - 1, *after = user + strspn(user, "0123456789");
    return after > user && *after == '.' && group_is_name(after + 1) ? after + 1 : NULL;
}

static void give_up(struct keep_group *group)
{
    struct keep_group **place = &groups;
    while (*place && *place != group)
        place = &(*place)->next;
    if (*place)
        *place = group->next;
    if (group->slot < GROUP_SLOTS) {
        store_remove_group(group->slot, group->file.name);
        (void)group_lock(group->file.file, (long)group->slot, F_UNLCK);
    }
    group_close(&group->file);
    free(group);
}

static struct keep_group *join(const char *path, char *why, size_t size)
{
    const char *name = name_in(path);
    struct keep_group *group = name ? calloc(1, sizeof *group) : NULL;
    snprintf(why, size, "%s is not the file of a group", path);
    if (!group)
        return NULL;
    group->slot = GROUP_SLOTS;
    if (!group_open(&group->file, name, NULL, why, size)) {
        free(group);
        return NULL;
    }
    if (strcmp(group->file.path, path) == 0 && take_slot(group)) {
        store_put_group(group->slot, group->file.name, group->file.file);
        group->next = groups;
        return groups = group;
    }
    snprintf(why, size, "%s has no slot left, or the owner sees another file there", path);
    give_up(group);
    return NULL;
}

static struct keep_group *find(const char *path)
{
    struct keep_group *group = groups;
    while (group && strcmp(group->file.path, path) != 0)
        group = group->next;
    return group;
}

/* Takes a slot over as the owner's process before left it. What is written there is not known. */
static bool take_over(uint32_t slot, const char *name, int file)
{
    struct keep_group *group = group_is_name(name) ? calloc(1, sizeof *group) : NULL;
    if (!group)
        return false;
    group->slot = slot;
    memset(group->used, 0xff, sizeof group->used);
    if (!group_reopen(&group->file, name, file) || find(group->file.path) ||
        !group_lock(file, (long)slot, F_WRLCK) || !sign(group)) {
        free(group);
        return false;
    }
    group->next = groups;
    groups = group;
    return true;
}

void keep_groups_restore(void)
{
    uint32_t slot;
    char name[GROUP_NAME];
    for (int file; (file = store_claim_group(&slot, name)) >= 0;)
        if (!take_over(slot, name, file)) {
            store_remove_group(slot, name);
            close(file);
        }
}

/* The device of a pool as groups know it: by the bytes of its UUID, of which the owner has the
 * text. HIP's are letters. A device without a UUID has zeros. */
static uint64_t device_of(const struct kept_pool *pool)
{
    const char *text = strchr(pool->device, '-');
    char uuid[16] = {0};
    if (text && strlen(text + 1) == sizeof uuid)
        memcpy(uuid, text + 1, sizeof uuid);
    else
        for (int i = 0; text && i < 16 && *text; i++) {
            text += *text == '-';
            char digits[3] = {text[0], text[0] ? text[1] : '\0', '\0'}, *end;
            uuid[i] = (char)strtoul(digits, &end, 16);
            if (end != digits + 2)
                break;
            text += 2;
        }
    return group_device(uuid);
}

void keep_group_choose(struct kept_pool *pool, const char *path)
{
    char why[400] = "";
    const char *own = getenv(RUN_GROUP_VARIABLE);
    path = *path ? path : own ? own : "";
    pool->group = *path ? find(path) : NULL;
    if (*path && !pool->group)
        pool->group = join(path, why, sizeof why);
    struct group *mapped = pool->group ? map(pool->group) : NULL;
    pool->row = mapped ? group_row(mapped, device_of(pool), true) : BOOK_DEVICES;
    if (mapped)
        munmap(mapped, sizeof *mapped);
    if (*path && !pool->group)
        fprintf(stderr, "tarn keep: pool %s counts in no group: %s\n", pool->name, why);
}

const char *keep_group_path(const struct kept_pool *pool)
{
    return pool->group ? pool->group->file.path : "";
}

const char *keep_group_name(const struct kept_pool *pool)
{
    return pool->group ? pool->group->file.name : "";
}

/* Counting ------------------------------------------------------------------------------------- */

/* Writes what a group's pools have that no process counts. No process counts what lingers: several
 * may read the same memory, and none need be in the group. Returns how many pools it has. */
static unsigned count(struct keep_group *group)
{
    uint64_t used[BOOK_DEVICES] = {0};
    unsigned members = 0;
    for (const struct kept_pool *pool = keep_pools(); pool; pool = pool->next) {
        members += pool->group == group;
        if (pool->group == group && pool->row < BOOK_DEVICES)
            used[pool->row] += (pool->claim ? 0 : kept_bytes(pool)) + keep_lingering(pool);
    }
    for (unsigned i = 0; i < BOOK_DEVICES; i++) {
        size_t at = offsetof(struct group_slot, device[i]) + offsetof(struct group_amount, used);
        if (used[i] != group->used[i] && write_word(group, slot_at(group->slot) + at, used[i]))
            group->used[i] = used[i];
    }
    return members;
}

void keep_groups_count(void)
{
    for (struct keep_group *group = groups, *next; group; group = next) {
        next = group->next;
        if (count(group) == 0)
            give_up(group);
    }
}

/* Whether the process that counts a pool lives, and is the same program. */
static bool is_counted(const struct kept_pool *pool)
{
    unsigned slot = pool->claim - 1;
    return pool->claimed == process_of(pool->group, slot) &&
           group_is_locked(pool->group->file.file, (long)slot);
}

/* The owner counts the pool from now on. Before the claim ends, the slot's figures stay. */
void keep_group_unclaim(struct kept_pool *pool)
{
    unsigned claim = pool->claim;
    bool others = false;
    pool->claim = 0;
    if (!claim)
        return;
    (void)count(pool->group);
    for (const struct kept_pool *other = keep_pools(); other; other = other->next)
        others |= other->group == pool->group && other->claim == claim;
    if (!others)
        (void)group_lock(pool->group->file.file, (long)GROUP_CLAIMS + claim - 1, F_UNLCK);
}

bool keep_group_claim(struct kept_pool *pool, uint32_t slot, uint64_t process)
{
    if (pool->claim && pool->claim == slot + 1)
        return is_counted(pool);
    if (!pool->group || pool->row == BOOK_DEVICES || slot >= GROUP_SLOTS || pool->claim ||
        !group_lock(pool->group->file.file, (long)GROUP_CLAIMS + slot, F_RDLCK))
        return false;
    pool->claim = slot + 1;
    pool->claimed = process ? process : process_of(pool->group, slot);
    if (pool->claimed && is_counted(pool))
        return true;
    keep_group_unclaim(pool);
    return false;
}

void keep_groups_claim_again(void)
{
    for (struct kept_pool *pool = keep_pools(); pool; pool = pool->next) {
        unsigned claim = pool->claim;
        pool->claim = 0;
        if (claim)
            (void)keep_group_claim(pool, claim - 1, pool->claimed);
    }
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void keep_groups_look_often(void)
{
    often_until = now_ms() + SELDOM_MS;
}

void keep_groups_look(void)
{
    for (struct kept_pool *pool = keep_pools(); pool; pool = pool->next)
        if (pool->claim && !is_counted(pool)) {
            keep_group_unclaim(pool);
            keep_record(pool);
        }
}

int keep_groups_wait_ms(void)
{
    for (const struct kept_pool *pool = keep_pools(); pool; pool = pool->next)
        if (pool->claim)
            return now_ms() < often_until ? LOOK_MS : SELDOM_MS;
    return -1;
}

void keep_groups_leave(void)
{
    while (groups && !store_is_there())
        give_up(groups);
}

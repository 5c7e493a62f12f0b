/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What an allocation and a free cost on one thread, beside host allocators. The library is opened with dlopen(), as a
 * program that loads it would have it (TARN_LIBRARY names another build), and runs on the host device, on one stream.
 *
 * The peers, the C library's malloc and mimalloc, hand out host memory: they say what an allocator's bookkeeping can cost, no
 * more. Every allocator is called through a function pointer, on the same sequence of requests. A round runs each of
 * them once, in an order that rotates; the time that is printed is the median of the rounds. Touched: the first 64 bytes of
 * each block are written after the allocation. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/tarn.h>
#include <time.h>

#ifdef TARN_HAVE_MIMALLOC
#include <mimalloc.h>
#endif

#define ROUNDS 15
#define PEERS 3
#define SLOTS 256
#define TOUCHED 64        /* bytes */
#define SMALL_STEPS 40000 /* requests a measurement */
#define LARGE_STEPS 2000  /* the same from 1 MiB on */
#define LARGE ((size_t)1 << 20)

struct peer {
    const char *name;
    void *(*alloc)(size_t size);
    void (*free)(void *block);
};

/* One request of a sequence: frees what the slot holds, or allocates into it. */
struct step {
    size_t size;
    unsigned slot;
};

struct sequence {
    struct step steps[SMALL_STEPS];
    size_t count;
};

static struct peer peers[PEERS];
static size_t peer_count;
static tarn_status (*library_free)(void *block);

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_alloc: %s: %s\n", what, why);
    exit(1);
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        die(name, dlerror());
    return found;
}

static void tarn_free_or_die(void *block)
{
    if (library_free(block) != TARN_OK)
        die("tarn_free", "failed");
}

static void peer_add(const char *name, void *(*alloc)(size_t size), void (*release)(void *block))
{
    peers[peer_count++] = (struct peer){name, alloc, release};
}

static void peers_open(void)
{
    const char *path = getenv("TARN_LIBRARY");
    void *library = dlopen(path && *path ? path : TARN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        die("dlopen", dlerror());
    library_free = (tarn_status(*)(void *))(uintptr_t)symbol(library, "tarn_free");
    const char *(*version)(void) = (const char *(*)(void))(uintptr_t)symbol(library, "tarn_version");
    peer_add("tarn", (void *(*)(size_t))(uintptr_t)symbol(library, "tarn_malloc"), tarn_free_or_die);
    printf("tarn %s, one thread, one stream of the host device\n", version());

#ifdef TARN_HAVE_MIMALLOC
    peer_add("mimalloc", mi_malloc, mi_free);
    int mimalloc = mi_version(); /* 209 is 2.0.9 */
    printf("mimalloc %d.%d.%d\n", mimalloc / 100, mimalloc / 10 % 10, mimalloc % 10);
#endif
    /* By name out of the C library: mimalloc's shared library replaces malloc() where a program links it. */
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    if (!libc)
        die("dlopen", dlerror());
    const char *(*libc_version)(void) = (const char *(*)(void))(uintptr_t)symbol(libc, "gnu_get_libc_version");
    peer_add("glibc", (void *(*)(size_t))(uintptr_t)symbol(libc, "malloc"),
             (void (*)(void *))(uintptr_t)symbol(libc, "free"));
    printf("glibc %s\n", libc_version());
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Allocation, free, allocation, free of one size. */
static void sequence_pairs(struct sequence *sequence, size_t size)
{
    sequence->count = size >= LARGE ? LARGE_STEPS : SMALL_STEPS;
    for (size_t i = 0; i < sequence->count; i++)
        sequence->steps[i] = (struct step){size, 0};
}

/* Random slots: one that is empty is filled with one of three sizes, one that is full is emptied. */
static void sequence_slots(struct sequence *sequence)
{
    static const size_t sizes[] = {512, 4096, 65536};
    uint64_t state = 0x9e3779b97f4a7c15u;
    sequence->count = SMALL_STEPS;
    for (size_t i = 0; i < sequence->count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sequence->steps[i] = (struct step){sizes[(state >> 40) % 3], (unsigned)(state >> 16) % SLOTS};
    }
}

/* Runs a sequence once and gives back what is left. Gives ns a pair of allocation and free. */
static double run(const struct peer *peer, const struct sequence *sequence, bool touch)
{
    void *slots[SLOTS] = {0};
    uint64_t start = now();
    for (size_t i = 0; i < sequence->count; i++) {
        const struct step *step = &sequence->steps[i];
        void **slot = &slots[step->slot];
        if (*slot) {
            peer->free(*slot);
            *slot = NULL;
            continue;
        }
        *slot = peer->alloc(step->size);
        if (!*slot)
            die(peer->name, "no memory");
        if (touch)
            memset(*slot, 1, TOUCHED);
    }
    uint64_t end = now();
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i])
            peer->free(slots[i]);
    return 2 * (double)(end - start) / (double)sequence->count;
}

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Measures every peer on a sequence, and prints a line. The medians, in ns, go to `medians`. */
static void measure(const char *name, const struct sequence *sequence, bool touch, double medians[PEERS])
{
    double times[PEERS][ROUNDS];
    for (size_t i = 0; i < peer_count; i++)
        (void)run(&peers[i], sequence, touch); /* warm */
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < peer_count; i++) {
            size_t peer = (i + round) % peer_count;
            times[peer][round] = run(&peers[peer], sequence, touch);
        }
    printf("%-20s", name);
    for (size_t i = 0; i < peer_count; i++) {
        qsort(times[i], ROUNDS, sizeof times[i][0], compare);
        medians[i] = times[i][ROUNDS / 2];
        printf("  %9.1f", medians[i]);
    }
    for (size_t i = 1; i < peer_count; i++)
        printf("  %13.2f", medians[0] / medians[i]);
    putchar('\n');
}

static void head(const char *title)
{
    printf("\n%s: ns for an allocation and its free, median of %d rounds\n%-20s", title, ROUNDS, "");
    for (size_t i = 0; i < peer_count; i++)
        printf("  %9s", peers[i].name);
    for (size_t i = 1; i < peer_count; i++) {
        char ratio[32];
        snprintf(ratio, sizeof ratio, "%s/%s", peers[0].name, peers[i].name);
        printf("  %13s", ratio);
    }
    putchar('\n');
}

static void small_blocks(struct sequence *sequence, bool touch)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {{"pair, 512 B", 512}, {"pair, 4 KiB", 4096}, {"pair, 64 KiB", 65536}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    double logs[PEERS] = {0}, medians[PEERS];
    head(touch ? "Small blocks, touched" : "Small blocks, untouched");
    for (size_t i = 0; i < SIZES; i++) {
        sequence_pairs(sequence, sizes[i].size);
        measure(sizes[i].name, sequence, touch, medians);
        for (size_t j = 0; j < peer_count; j++)
            logs[j] += log(medians[j]) / SIZES;
    }
    printf("%-20s", "  geometric mean");
    for (size_t j = 0; j < peer_count; j++)
        printf("  %9.1f", exp(logs[j]));
    for (size_t j = 1; j < peer_count; j++)
        printf("  %13.2f", exp(logs[0] - logs[j]));
    putchar('\n');
    sequence_pairs(sequence, sizes[0].size);
    sequence->steps[0].slot = 1; /* stays */
    measure("pair, 512 B, 1 held", sequence, touch, medians);
    sequence_slots(sequence);
    measure("256 random slots", sequence, touch, medians);
}

static void large_blocks(struct sequence *sequence)
{
    static const char *const names[] = {"pair, 1 MiB", "pair, 16 MiB", "pair, 128 MiB", "pair, 1 GiB"};
    static const size_t sizes[] = {LARGE, LARGE << 4, LARGE << 7, LARGE << 10};
    double medians[PEERS];
    head("Large blocks, untouched, steady");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        sequence_pairs(sequence, sizes[i]);
        measure(names[i], sequence, false, medians);
    }
    puts("(a host allocator may take such a block from the system and give it back each time; it touches none of it)");
}

int main(void)
{
    static struct sequence sequence;
    peers_open();
    small_blocks(&sequence, false);
    small_blocks(&sequence, true);
    large_blocks(&sequence);
    return 0;
}

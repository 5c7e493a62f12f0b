/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A server of a language model in miniature: no mathematics, but the memory of one. It keeps what
 * it has computed for a prompt, so that the next request with that prompt need not compute it
 * again. It has a fault, and runs out of memory: docs/tutorial-out-of-memory.md finds it. With an
 * argument it leaves a snapshot there at the end. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/tarn.h>
#include <time.h>

enum { LAYERS = 8, PROMPTS = 5, REQUESTS = 200 };
#define MIB ((size_t)1 << 20)

struct request {
    unsigned number, prompt;
};

/* What was computed for the prompt of a request: its keys and values, in device memory. */
struct prefix {
    struct request request;
    void *block;
};

static struct prefix *prefixes;
static size_t prefix_count;
static tarn_pool *prefix_pool;

static void must(tarn_status status)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

static void *allocate(size_t size, const char *what)
{
    tarn_alloc_options options = {.size = sizeof options, .device = TARN_CURRENT_DEVICE};
    void *block;
    must(tarn_tag_intern(what, &options.tag));
    must(tarn_alloc(&options, size, &block));
    return block;
}

static void load(void)
{
    must(tarn_region_push("load"));
    for (int layer = 0; layer < LAYERS; layer++)
        allocate(24 * MIB, "weights");
    must(tarn_region_pop());
}

/* Stands where kernels run, on the thread's current stream. */
static void compute(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* All layers, one after the other, with what they need meanwhile. */
static void forward(size_t tokens)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        char name[16];
        snprintf(name, sizeof name, "layer %d", layer);
        must(tarn_region_push(name));
        void *attention = allocate(tokens * 24 * 1024, "attention");
        void *activations = allocate(tokens * 16 * 1024, "activations");
        compute();
        must(tarn_free(attention)); /* in the order of the stream: it waits for nothing */
        must(tarn_free(activations));
        must(tarn_region_pop());
    }
}

static void *find_prefix(const struct request *request)
{
    for (size_t i = 0; i < prefix_count; i++)
        if (memcmp(&prefixes[i].request, request, sizeof *request) == 0)
            return prefixes[i].block;
    return NULL;
}

static void keep_prefix(const struct request *request, size_t tokens)
{
    tarn_scope scope;
    must(tarn_scope_begin(prefix_pool, TARN_SCOPE_THREAD, 0, &scope));
    void *block = allocate(tokens * 16 * 1024, "keys and values");
    must(tarn_scope_end(scope));
    prefixes = realloc(prefixes, (prefix_count + 1) * sizeof *prefixes);
    prefixes[prefix_count++] = (struct prefix){*request, block};
}

static void serve(const struct request *request)
{
    size_t tokens = 512 + 256 * request->prompt;
    must(tarn_region_push("request"));
    if (!find_prefix(request)) {
        must(tarn_region_push("prefill"));
        forward(tokens);
        keep_prefix(request, tokens);
        must(tarn_region_pop());
    }
    must(tarn_region_push("decode"));
    forward(1);
    must(tarn_region_pop());
    must(tarn_region_pop());
}

int main(int argc, char **argv)
{
    tarn_stats stats = {.size = sizeof stats};
    must(tarn_pool_create(NULL, &prefix_pool));
    load();
    for (unsigned i = 0; i < REQUESTS; i++) {
        serve(&(struct request){.number = i, .prompt = i % PROMPTS});
        must(tarn_device_stats_get(0, &stats));
        if (i % 20 == 0)
            printf("request %u: %zu prefixes, %lld MiB allocated\n", i, prefix_count,
                   (long long)(stats.allocated_bytes[TARN_STAT_ALL].current >> 20));
        fflush(stdout);
    }
    if (argc > 1)
        must(tarn_snapshot_write(argv[1], NULL));
    must(tarn_shutdown());
    return 0;
}

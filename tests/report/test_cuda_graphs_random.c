/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Random graphs on the simulated libcuda: of those without a fault none has a certain finding,
 * whatever their parameters look like, except for what cannot be told from a fault; of those with
 * one, each that can be seen is found. Prints the numbers of both. TARN_SEED chooses the
 * sequence. */
#include "report/graph_test.h"

#include <inttypes.h>
#include <stdlib.h>

#define GRAPHS 1000
#define BLOCKS 24

static struct found found;
static uint64_t state;
static tarn_stream stream;

static uint64_t below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

static struct block {
    char *start;
    size_t size;
    bool used; /* a node has an address in it that it uses */
} blocks[BLOCKS];

static struct block workspace; /* lives as long as the graphs */

static struct block block_made(void)
{
    static const size_t most[] = {2048, 65536, (size_t)4 << 20};
    size_t size = 512 * (1 + below(most[below(3)] / 512));
    return (struct block){.start = alloc_on(stream, size), .size = size};
}

static struct block *any(void)
{
    struct block *block = &blocks[below(BLOCKS)];
    block->used = true;
    return block;
}

/* What a parameter may be that is no pointer, or one that is not used: where a block was that is
 * gone, padding with an old address in it, two numbers whose upper one looks like an address. */
static const void *junk(const void *stale)
{
    const uint64_t near = UINT64_C(1) << 31, here = (uintptr_t)blocks[0].start;
    switch (below(5)) {
    case 0:
        return stale;
    case 1:
        return (const void *)(uintptr_t)(here - near + below(2 * near));
    case 2:
        return (const void *)(uintptr_t)below(UINT64_MAX);
    case 3:
        return NULL;
    default:
        return (const void *)(uintptr_t)below(4096);
    }
}

/* A node that uses live memory only, with the traps. */
static void add_clean_node(cu_graph graph, const void *stale)
{
    const struct block *a = any(), *b = any(), *unused = &blocks[below(BLOCKS)];
    const void *fields[8];
    switch (below(10)) {
    case 0:
        add_three(graph, a->start, b->start);
        break;
    case 1: /* begin and end, which is perhaps where the next block starts */
        add_three(graph, a->start, a->start + a->size);
        break;
    case 2: /* base minus an offset, which is never where a block starts: see BASE_MINUS */
        add_three(graph, a->start - 8 * (1 + 2 * below(2048)), b->start + below(b->size));
        break;
    case 3:
        add_three(graph, a->start, junk(stale));
        break;
    case 4: /* slots that are not used, with addresses of blocks that nobody uses here */
        for (int i = 0; i < 8; i++)
            fields[i] = below(2) ? junk(stale) : unused->start;
        fields[below(8)] = a->start;
        add_packed(graph, fields, b->start);
        break;
    case 5:
        add_copy(graph, a->start, a->start, 64);
        break;
    case 6:
        add_fill(graph, a->start + 256, 128);
        break;
    case 7:
        add_batch(graph, a->start);
        break;
    case 8: /* a part of a workspace, which ends where the workspace does */
        add_three(graph, workspace.start + 512 * below(workspace.size / 512),
                  workspace.start + workspace.size);
        break;
    default:
        add_one(graph, a->start);
    }
}

static cu_graph clean_graph(const void *stale)
{
    cu_graph graph = graph_made();
    for (uint64_t left = 2 + below(14); left; left--)
        add_clean_node(graph, stale);
    if (below(4) == 0) {
        cu_graph child = graph_made();
        for (uint64_t left = 1 + below(4); left; left--)
            add_clean_node(child, stale);
        add_child(graph, child);
        CU(cu.cuGraphDestroy(child));
    }
    return graph;
}

static void begin_graph(void)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = block_made();
}

/* Blocks that no node uses are freed, and others allocated in their places. */
static void go_on_allocating(void)
{
    struct block others[BLOCKS];
    int count = 0;
    for (int i = 0; i < BLOCKS; i++)
        if (!blocks[i].used) {
            OK(tarn_free(blocks[i].start));
            blocks[i].start = NULL;
            if (below(2))
                others[count++] = block_made();
        }
    while (count)
        OK(tarn_free(others[--count].start));
}

static void end_graph(cu_graph graph)
{
    CU(cu.cuGraphDestroy(graph));
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].start)
            OK(tarn_free(blocks[i].start));
}

/* Findings by certainty. */
struct counts {
    size_t of[TARN_GRAPH_CERTAIN + 1];
};

static void count(struct counts *counts)
{
    counts->of[TARN_GRAPH_CERTAIN] += found.summary.certain;
    counts->of[TARN_GRAPH_LIKELY] += found.summary.likely;
    counts->of[TARN_GRAPH_PERHAPS] += found.summary.perhaps;
}

static void print(int graphs, const char *what, const struct counts *counts)
{
    printf("%d %s: %zu certain, %zu likely, %zu perhaps\n", graphs, what,
           counts->of[TARN_GRAPH_CERTAIN], counts->of[TARN_GRAPH_LIKELY],
           counts->of[TARN_GRAPH_PERHAPS]);
}

static void clean_graphs_have_no_certain_finding(void **unused)
{
    (void)unused;
    struct counts counts = {{0}};
    for (int i = 0; i < GRAPHS; i++) {
        struct block gone = block_made();
        begin_graph();
        OK(tarn_free(gone.start)); /* its place is nobody's when the graph is remembered */
        cu_graph graph = clean_graph(gone.start);
        OK(tarn_graph_remember(graph, NULL));
        go_on_allocating();
        check_into(&found, graph, false);
        CHECK(found.summary.certain == 0 && found.summary.remembered);
        count(&counts);
        end_graph(graph);
    }
    print(GRAPHS, "clean graphs", &counts);
}

/* ---- What cannot be told from a fault ---- */

enum twin {
    BASE_MINUS, /* base minus an offset, which is where another block starts */
    UNUSED,     /* a parameter that the kernel does not use */
    END_ALONE,  /* the end of a block that the node has no other address of */
    TWINS
};

static const char *const twin_names[TWINS] = {
    "clean graphs with a block minus a multiple of 512",
    "clean graphs with an unused pointer",
    "clean graphs with an end without its start",
};

static void add_twin(cu_graph graph, enum twin twin)
{
    const struct block *a = any();
    if (twin == BASE_MINUS)
        add_one(graph, a->start - 512 * (1 + below(32)));
    else if (twin == UNUSED)
        add_three(graph, a->start, blocks[below(BLOCKS)].start);
    else
        add_one(graph, a->start + a->size);
}

static void what_looks_like_a_fault_is_counted(void **unused)
{
    (void)unused;
    struct counts counts[TWINS] = {{{0}}};
    for (int i = 0; i < TWINS * GRAPHS; i++) {
        begin_graph();
        cu_graph graph = graph_made();
        for (uint64_t left = 1 + below(8); left; left--)
            add_one(graph, any()->start);
        add_twin(graph, (enum twin)(i % TWINS));
        OK(tarn_graph_remember(graph, NULL));
        go_on_allocating();
        check_into(&found, graph, false);
        CHECK(found.count <= 1); /* all others are used, and live */
        count(&counts[i % TWINS]);
        end_graph(graph);
    }
    for (int i = 0; i < TWINS; i++)
        print(GRAPHS, twin_names[i], &counts[i]);
}

/* ---- Faults ---- */

enum fault {
    BEFORE,      /* freed before the graph was remembered */
    AFTER,       /* freed afterwards */
    AGAIN,       /* freed afterwards, and another block of that size is there */
    INSIDE,      /* freed; a view of it was passed */
    FIELD,       /* freed; only a structure has it */
    FIELD_TWICE, /* freed; a structure has it, and a parameter of another node */
    CHILD,       /* freed; a node of an embedded graph has it */
    COPY,        /* freed; a copy reads it */
    FILL,        /* freed; a fill writes it */
    FAULTS
};

static const char *const fault_names[FAULTS] = {
    "freed before it was remembered", "freed after the capture",
    "freed and allocated again",      "freed, inside of the block",
    "freed, in a structure",          "freed, in a structure and a parameter",
    "freed, in an embedded graph",    "freed, read by a copy",
    "freed, written by a fill",
};

static void plant(cu_graph graph, enum fault fault, char *victim)
{
    const void *fields[8] = {NULL};
    cu_graph child;
    switch (fault) {
    case FIELD_TWICE:
        add_one(graph, victim);
        /* fall through */
    case FIELD:
        fields[below(8)] = victim;
        add_packed(graph, fields, any()->start);
        break;
    case INSIDE:
        add_three(graph, victim + 8 * (1 + below(60)), any()->start);
        break;
    case CHILD:
        child = graph_made();
        add_one(child, victim);
        add_child(graph, child);
        CU(cu.cuGraphDestroy(child));
        break;
    case COPY:
        add_copy(graph, any()->start, victim, 64);
        break;
    case FILL:
        add_fill(graph, victim, 64);
        break;
    default:
        add_one(graph, victim);
    }
}

/* Whether an address that belongs to the victim is found; the certainty. */
static tarn_graph_certainty certainty_of(const struct block *victim)
{
    tarn_graph_certainty best = TARN_GRAPH_NO_FINDING;
    for (size_t i = 0; i < found.count; i++) {
        const tarn_graph_reference *it = &found.list[i];
        if ((char *)it->address >= victim->start &&
            (char *)it->address < victim->start + victim->size && it->certainty > best)
            best = it->certainty;
    }
    return best;
}

/* What the rules promise. */
static const tarn_graph_certainty promised[FAULTS] = {
    [BEFORE] = TARN_GRAPH_LIKELY, [AFTER] = TARN_GRAPH_CERTAIN, [AGAIN] = TARN_GRAPH_CERTAIN,
    [INSIDE] = TARN_GRAPH_LIKELY, [FIELD] = TARN_GRAPH_PERHAPS, [FIELD_TWICE] = TARN_GRAPH_CERTAIN,
    [CHILD] = TARN_GRAPH_CERTAIN, [COPY] = TARN_GRAPH_CERTAIN,  [FILL] = TARN_GRAPH_CERTAIN,
};

static const char *const certainty_names[] = {"no finding", "perhaps", "likely", "certain"};

static void planted_faults_are_found(void **unused)
{
    (void)unused;
    struct counts counts = {{0}};
    size_t planted[FAULTS] = {0}, seen[FAULTS] = {0}, all = 0;
    for (int i = 0; i < GRAPHS; i++) {
        enum fault fault = (enum fault)(i % FAULTS);
        begin_graph();
        struct block victim = block_made(), again = {0};
        cu_graph graph = clean_graph(NULL);
        plant(graph, fault, victim.start);
        if (fault == BEFORE)
            OK(tarn_free(victim.start));
        OK(tarn_graph_remember(graph, NULL));
        if (fault != BEFORE)
            OK(tarn_free(victim.start));
        if (fault == AGAIN)
            again = (struct block){.start = alloc_at(stream, victim.size, victim.start)};
        check_into(&found, graph, false);
        CHECK(!again.start || finding(&found, victim.start)->state == TARN_GRAPH_CHANGED);
        tarn_graph_certainty certainty = certainty_of(&victim);
        CHECK(certainty >= promised[fault]);
        CHECK(found.summary.verdict == TARN_GRAPH_SUSPICIOUS);
        planted[fault]++;
        seen[fault] += certainty != TARN_GRAPH_NO_FINDING;
        all += certainty != TARN_GRAPH_NO_FINDING;
        counts.of[certainty]++;
        if (again.start)
            OK(tarn_free(again.start));
        end_graph(graph);
    }
    for (int i = 0; i < FAULTS; i++)
        printf("%-38s %3zu of %3zu found, each at least %s\n", fault_names[i], seen[i], planted[i],
               certainty_names[promised[i]]);
    CHECK(all == GRAPHS);
    print(GRAPHS, "faults planted, each found", &counts);
}

static int begin(void **unused)
{
    (void)unused;
    const char *seed = getenv("TARN_SEED");
    state = seed ? strtoull(seed, NULL, 0) : 36;
    state = state * UINT64_C(0x9e3779b97f4a7c15) + 1;
    host_start_with(1, 1024 * MIB);
    cuda_calls_load();
    stream = lease(0);
    workspace = (struct block){.size = 4 * MIB};
    workspace.start = alloc_on(stream, workspace.size);
    return 0;
}

int main(void)
{
    setenv("TARN_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_graphs_have_no_certain_finding),
        cmocka_unit_test(what_looks_like_a_fault_is_counted),
        cmocka_unit_test(planted_faults_are_found),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}

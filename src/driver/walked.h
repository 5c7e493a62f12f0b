/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the walks of the vendors' graphs share: the word that is visited, and the layouts of
 * kernels. Layouts are kept for one walk, as a handle may be another kernel's in the next. */
#ifndef TARN_DRIVER_WALKED_H
#define TARN_DRIVER_WALKED_H

#include "driver/driver.h"

#define WALKED_DEEPEST 8 /* graphs embedded in graphs */
#define WALKED_KERNELS 256

struct walked_parameter {
    size_t offset, size;
};

/* A kernel's parameters: `count` entries of the walk's list from `first` on. */
struct walked_layout {
    const void *kernel;
    const char *name;
    size_t first, count;
    bool known;
};

struct walked {
    struct driver_walk *walk;
    struct driver_word word;                      /* the word being visited */
    bool full;                                    /* the caller has no more room */
    struct walked_layout layouts[WALKED_KERNELS]; /* the latest ones, by the kernel's address */
    struct walked_parameter *parameters;          /* from pages_map() */
    size_t parameter_count, parameter_room;
};

/* NULL with an error: there is no host memory. */
struct walked *walked_begin(struct driver_walk *walk);
/* Returns `status`, or that there was no host memory for the words. */
tarn_status walked_end(struct walked *walked, tarn_status status);

/* Begins a node, which has the next number. */
void walked_node(struct walked *walked, driver_node node, unsigned depth, enum driver_node_kind of);

/* An address that the node uses, `size` bytes from there on; 0: unknown. */
void walked_address(struct walked *walked, unsigned parameter, uint64_t address, size_t size);

/* The words of one parameter of a kernel. Pointers are at multiples of 8. */
void walked_parameter(struct walked *walked, const struct walked_parameter *parameter,
                      const char *bytes);

/* Counts something that cannot be looked at. */
void walked_miss(struct walked *walked, enum driver_unseen why);

/* How a driver answers a question about a parameter. */
enum walked_answer {
    WALKED_PARAMETER, /* this is it */
    WALKED_END,       /* the kernel has no more */
    WALKED_NO_ANSWER  /* the driver does not tell */
};

/* How a vendor is asked. `asked` is the vendor's own description of the kernel. */
struct walked_asker {
    enum walked_answer (*parameter)(const void *asked, size_t index,
                                    struct walked_parameter *parameter);
    const char *(*name)(const void *asked); /* "": it is unknown */
};

/* The layout of a kernel, which is asked for once. */
const struct walked_layout *walked_layout(struct walked *walked, const void *kernel,
                                          const struct walked_asker *asker, const void *asked);

#endif

/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "analysis/paths.h"

#include <stdlib.h>

bool paths_init(struct paths *paths)
{
    *paths = (struct paths){.list = calloc(64, sizeof *paths->list), .count = 1, .capacity = 64};
    return paths->list;
}

void paths_finish(struct paths *paths)
{
    table_finish(&paths->numbers);
}

uint32_t path_of(struct paths *paths, uint32_t frame, uint32_t caller)
{
    uint32_t *number = table_add(&paths->numbers, frame, caller, (uint32_t)paths->count);
    if (!number || *number < paths->count)
        return number ? *number : 0;
    if (paths->count == paths->capacity) {
        size_t capacity = 2 * paths->capacity;
        struct analysis_path *grown = realloc(paths->list, capacity * sizeof *grown);
        if (!grown)
            return 0;
        paths->list = grown;
        paths->capacity = capacity;
    }
    paths->list[paths->count] = (struct analysis_path){frame, caller};
    return (uint32_t)paths->count++;
}

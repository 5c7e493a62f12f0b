/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Tells the words of nodes, and keeps the layouts of kernels. Owns nothing beyond a walk. */
#include "driver/walked.h"
#include "base/pages.h"
#include "base/status.h"

#include <string.h>

struct walked *walked_begin(struct driver_walk *walk)
{
    struct walked *walked = pages_map(sizeof *walked);
    if (walked)
        walked->walk = walk;
    else
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to look at a graph");
    return walked;
}

tarn_status walked_end(struct walked *walked, tarn_status status)
{
    if (!status && walked->full)
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the words of a graph");
    pages_unmap(walked->parameters, walked->parameter_room * sizeof *walked->parameters);
    pages_unmap(walked, sizeof *walked);
    return status;
}

void walked_node(struct walked *walked, driver_node node, unsigned depth, enum driver_node_kind of)
{
    walked->word = (struct driver_word){
        .node = node, .number = walked->walk->nodes++, .depth = depth, .kernel = "", .of = of};
}

static void tell(struct walked *walked, uint64_t value)
{
    if (!walked->full && driver_word_may_be_address(value)) {
        walked->word.value = value;
        walked->full = !walked->walk->word(&walked->word, walked->walk->user);
    }
}

void walked_address(struct walked *walked, unsigned parameter, uint64_t address, size_t size)
{
    walked->word.kind = WORD_IS_ADDRESS;
    walked->word.parameter = parameter;
    walked->word.offset = 0;
    walked->word.size = size;
    tell(walked, address);
}

void walked_parameter(struct walked *walked, const struct walked_parameter *parameter,
                      const char *bytes)
{
    walked->word.kind = parameter->size == 8 ? WORD_IS_WHOLE : WORD_IS_FIELD;
    walked->word.size = parameter->size;
    for (size_t at = -parameter->offset % 8; at + 8 <= parameter->size; at += 8) {
        uint64_t value;
        memcpy(&value, bytes + at, sizeof value);
        walked->word.offset = at;
        tell(walked, value);
    }
}

void walked_miss(struct walked *walked, enum driver_unseen why)
{
    walked->walk->unseen[why]++;
}

static bool add_parameter(struct walked *walked, const struct walked_parameter *parameter)
{
    if (walked->parameter_count == walked->parameter_room) {
        size_t room = walked->parameter_room ? 2 * walked->parameter_room : 1024;
        struct walked_parameter *list = pages_map(room * sizeof *list);
        if (!list)
            return false;
        if (walked->parameter_count)
            memcpy(list, walked->parameters, walked->parameter_count * sizeof *list);
        pages_unmap(walked->parameters, walked->parameter_room * sizeof *list);
        walked->parameters = list;
        walked->parameter_room = room;
    }
    walked->parameters[walked->parameter_count++] = *parameter;
    return true;
}

const struct walked_layout *walked_layout(struct walked *walked, const void *kernel,
                                          const struct walked_asker *asker, const void *asked)
{
    struct walked_layout *layout = &walked->layouts[((uintptr_t)kernel >> 4) % WALKED_KERNELS];
    if (layout->kernel == kernel)
        return layout;
    *layout = (struct walked_layout){
        .kernel = kernel, .name = asker->name(asked), .first = walked->parameter_count};
    enum walked_answer answer;
    struct walked_parameter parameter = {0, 0};
    while ((answer = asker->parameter(asked, layout->count, &parameter)) == WALKED_PARAMETER &&
           add_parameter(walked, &parameter))
        layout->count++;
    layout->known = answer == WALKED_END;
    return layout;
}

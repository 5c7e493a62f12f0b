/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns modules: which part of a model allocated a block, as far as the frames of a stack show it.
 *
 * PyTorch writes no module's name into a frame. The chain of forward() functions shows it: the
 * innermost one belongs to the module that allocates, and the line at which each of the others
 * calls the next identifies the child. For a module that creates its own weights, the chain of
 * __init__() does the same. A frame that the recording itself named after a module ("layers.0
 * (Block)") is trusted. A stack's caller has a lower number than the stack, so one pass finds all
 * modules. */
#include "analysis/analysis.h"
#include "analysis/library_files.h"
#include "analysis/paths.h"

#include "table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where PyTorch's package has its own modules. */
#define MODULES "nn/modules/"

/* What a frame shows about modules. */
enum part { PART_NONE, PART_FORWARD, PART_INIT, PART_LIBRARY_INIT, PART_NAMED, PART_FUNCTION };

/* Modules under construction. */
struct draft {
    uint8_t *parts; /* by frame */
    /* for each frame: the first frame with the same function and file; the line of that frame has
     * no meaning */
    uint32_t *heads;
    /* for each stack: the path of its forward() functions with their lines; 0: none */
    uint32_t *inner;
    uint32_t *inits; /* the same for __init__() */
    struct paths paths;
};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* True if a function, or a class's function, has this name ("Block.forward"). */
static bool is_named(const char *name, const char *wanted)
{
    size_t length = strlen(name), tail = strlen(wanted);
    return ends_with(name, wanted) && (length == tail || name[length - tail - 1] == '.');
}

/* True for a name such as "layers.0.attention (Attention)". */
static bool is_module_name(const char *name)
{
    const char *class = strstr(name, " (");
    size_t length = class ? strcspn(class + 2, " ()<>,:*&") : 0;
    return class && class > name && length && strcmp(class + 2 + length, ")") == 0 &&
           (size_t)(class - name) == strcspn(name, " ()<>,:*&");
}

/* True for a file of PyTorch's own modules. */
static bool is_of_modules(const char *file)
{
    const char *torch = library_torch_part(file);
    return torch && strncmp(torch, MODULES, sizeof MODULES - 1) == 0;
}

static enum part part_of(const struct snapshot *snapshot, const struct snapshot_frame *frame)
{
    const char *name = snapshot_text(snapshot, frame->name),
               *file = snapshot_text(snapshot, frame->filename);
    if (!ends_with(file, ".py"))
        return PART_NONE;
    if (is_module_name(name))
        return PART_NAMED;
    const char *torch = library_torch_part(file);
    bool of_modules = is_of_modules(file);
    if (torch && is_named(name, "apply") && strcmp(torch, "autograd/function.py") == 0)
        return PART_FUNCTION; /* its forward() is that of an operation, not of a module */
    if (torch && (!of_modules || strcmp(torch, MODULES "container.py") == 0 ||
                  strcmp(torch, MODULES "module.py") == 0)) /* these functions only call others */
        return PART_NONE;
    if (is_named(name, "forward"))
        return PART_FORWARD;
    if (is_named(name, "__init__"))
        return of_modules ? PART_LIBRARY_INIT : PART_INIT;
    return PART_NONE;
}

static bool find_parts(const struct snapshot *snapshot, struct draft *draft)
{
    struct table heads = {0};
    bool done = true;
    for (uint32_t i = 0; done && i < snapshot->frame_count; i++) {
        const struct snapshot_frame *frame = &snapshot->frames[i];
        const uint32_t *head = table_add(&heads, frame->name, frame->filename, i);
        done = head != NULL;
        draft->heads[i] = head ? *head : 0;
        draft->parts[i] = (uint8_t)part_of(snapshot, frame);
    }
    table_finish(&heads);
    return done;
}

/* Each stack inherits its caller's module, and goes one module deeper if its frame belongs to
 * one. */
static bool find_modules(const struct snapshot *snapshot, struct draft *draft, uint32_t *modules)
{
    for (size_t i = 1; i < snapshot->stack_count; i++) {
        const struct snapshot_stack *stack = &snapshot->stacks[i];
        enum part part = draft->parts[stack->frame];
        bool forward = part == PART_FORWARD &&
                       draft->parts[snapshot->stacks[stack->caller].frame] != PART_FUNCTION;
        bool init = part == PART_INIT || part == PART_LIBRARY_INIT;
        uint32_t outer = draft->inner[stack->caller], makers = draft->inits[stack->caller];
        uint32_t head = draft->heads[stack->frame];
        draft->inner[i] = outer;
        draft->inits[i] = makers;
        modules[i] = modules[stack->caller];
        if (forward || part == PART_NAMED) {
            draft->inner[i] = path_of(&draft->paths, stack->frame, part == PART_NAMED ? 0 : outer);
            modules[i] = path_of(&draft->paths, head, part == PART_NAMED ? 0 : outer);
        } else if (init) {
            draft->inits[i] = path_of(&draft->paths, stack->frame, makers);
            modules[i] =
                part == PART_LIBRARY_INIT ? path_of(&draft->paths, head, makers) : modules[i];
        }
        bool short_of_memory = (forward && (!draft->inner[i] || !modules[i])) ||
                               (init && !draft->inits[i]) ||
                               ((part == PART_LIBRARY_INIT || part == PART_NAMED) && !modules[i]);
        if (short_of_memory)
            return false;
    }
    return true;
}

bool analysis_modules_make(struct analysis *analysis)
{
    const struct snapshot *snapshot = analysis->snapshot;
    size_t stacks = snapshot->stack_count + 1, frames = snapshot->frame_count + 1;
    uint32_t *modules = calloc(stacks, sizeof *modules);
    struct draft draft = {.parts = calloc(frames, sizeof *draft.parts),
                          .heads = calloc(frames, sizeof *draft.heads),
                          .inner = calloc(stacks, sizeof *draft.inner),
                          .inits = calloc(stacks, sizeof *draft.inits)};
    bool made = paths_init(&draft.paths) && modules && draft.parts && draft.heads && draft.inner &&
                draft.inits && find_parts(snapshot, &draft) &&
                find_modules(snapshot, &draft, modules);
    if (made) {
        free(analysis->modules);
        free(analysis->module_paths);
        analysis->modules = modules;
        analysis->module_paths = draft.paths.list;
        analysis->module_count = draft.paths.count;
    } else {
        free(modules);
        free(draft.paths.list);
    }
    paths_finish(&draft.paths);
    free(draft.parts);
    free(draft.heads);
    free(draft.inner);
    free(draft.inits);
    return made;
}

/* --- labels --- */

/* Writes a part's name: "Block" of "Block.forward", "Linear" of PyTorch's own linear.py, otherwise
 * the file. All except the innermost part also have the line of the call. */
static int part_label(const struct snapshot *snapshot, const struct snapshot_frame *frame,
                      bool innermost, char *label, size_t size)
{
    const char *name = snapshot_text(snapshot, frame->name),
               *file = snapshot_text(snapshot, frame->filename);
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file,
               *dot = strrchr(name, '.');
    if (is_module_name(name))
        return snprintf(label, size, "%s", name);
    char line[16] = "";
    if (frame->line && !innermost)
        snprintf(line, sizeof line, ":%" PRIu32, frame->line);
    int stem = (int)(strlen(base) - strlen(".py"));
    if (is_of_modules(file) && innermost)
        return snprintf(label, size, "torch.nn %.*s", stem, base);
    if (dot && dot > name)
        return snprintf(label, size, "%.*s%s%s%s", (int)(dot - name), name, *line ? "  " : "",
                        *line ? base : "", line);
    return snprintf(label, size, "%s  %s%s", name, base, line);
}

int analysis_module_label(const struct analysis *analysis, uint32_t module, char *label,
                          size_t size)
{
    if (!module)
        return snprintf(label, size, "no module");
    char none[1] = ""; /* what does not fit is counted and not written */
    size_t written = 0;
    for (uint32_t at = module; at; at = analysis->module_paths[at].caller) {
        size_t room = written < size ? size - written : 0;
        if (at != module)
            written += (size_t)snprintf(room ? label + written : none, room, " < ");
        room = written < size ? size - written : 0;
        written += (size_t)part_label(analysis->snapshot,
                                      &analysis->snapshot->frames[analysis->module_paths[at].frame],
                                      at == module, room ? label + written : none, room);
    }
    return (int)written;
}

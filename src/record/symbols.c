/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what a look-up of symbols needs while it is open. libdw is opened when the first snapshot
 * with stacks is written, and stays open. Its prototypes are those of elfutils/libdwfl.h. */
#include "record/symbols.h"
#include "base/pages.h"
#include "base/thread/lock.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

typedef struct Dwfl Dwfl;
typedef struct Dwfl_Module Dwfl_Module;
typedef struct Dwfl_Line Dwfl_Line;

/* The beginning of elfutils' Dwfl_Callbacks. */
struct callbacks {
    void *find_elf, *find_debuginfo, *section_address;
    char **debuginfo_path;
};

struct dw {
    Dwfl *(*begin)(const struct callbacks *);
    void (*end)(Dwfl *);
    int (*report)(Dwfl *, pid_t);
    int (*report_end)(Dwfl *, int (*)(Dwfl_Module *, void *, const char *, uint64_t, void *),
                      void *);
    Dwfl_Module *(*module)(Dwfl *, uint64_t);
    const char *(*name)(Dwfl_Module *, uint64_t);
    Dwfl_Line *(*source)(Dwfl_Module *, uint64_t);
    const char *(*line)(Dwfl_Line *, uint64_t *, int *, int *, uint64_t *, uint64_t *);
    struct callbacks callbacks;
    bool there;
};

static struct dw dw; /* symbols_lock until `looked` */
static mutex symbols_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static atomic_bool looked;

struct symbols {
    Dwfl *dwfl;
    /* Where the library's own object is loaded; NULL if it is linked into the program. */
    const void *own;
};

/* Several threads may search at the same time, and find the same. No thread waits for another,
 * which may be waiting for the loader. */
static void find_libdw(void)
{
    struct dw here = {.there = false};
    const struct {
        const char *name;
        void *place;
    } needed[] = {
        {"dwfl_begin", &here.begin},
        {"dwfl_end", &here.end},
        {"dwfl_linux_proc_report", &here.report},
        {"dwfl_report_end", &here.report_end},
        {"dwfl_addrmodule", &here.module},
        {"dwfl_module_addrname", &here.name},
        {"dwfl_module_getsrc", &here.source},
        {"dwfl_lineinfo", &here.line},
        {"dwfl_linux_proc_find_elf", &here.callbacks.find_elf},
        {"dwfl_standard_find_debuginfo", &here.callbacks.find_debuginfo},
    };
    void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    here.there = library;
    for (size_t i = 0; library && i < sizeof needed / sizeof *needed; i++) {
        void *found = dlsym(library, needed[i].name);
        memcpy(needed[i].place, &found, sizeof found);
        here.there = here.there && found;
    }
    mutex_lock(&symbols_lock);
    if (!atomic_load(&looked))
        dw = here;
    atomic_store(&looked, true);
    mutex_unlock(&symbols_lock);
}

struct search {
    uintptr_t address, base;
};

/* The object begins with its first segment, as dladdr() has it. */
static int holds(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct search *search = argument;
    uintptr_t base = UINTPTR_MAX;
    bool found = false;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        base = start < base ? start : base;
        found = found || search->address - start < part->p_memsz;
    }
    if (found)
        search->base = base & ~((uintptr_t)getpagesize() - 1);
    return found;
}

const void *symbol_base(const void *address)
{
    struct search search = {.address = (uintptr_t)address};
    (void)dl_iterate_phdr(holds, &search);
    return (const void *)search.base;
}

/* Where the library's own object is loaded; NULL if that is the program. */
static const void *own_base(void)
{
    static const char here;
    const void *own = symbol_base(&here);
    return own == symbol_base((const void *)(uintptr_t)getauxval(AT_ENTRY)) ? NULL : own;
}

bool symbol_is_own(uint64_t address)
{
    const void *own = own_base();
    return own && symbol_base((const void *)(uintptr_t)address) == own;
}

/* Bytes of stack that libdw is given: it reads a table of lines there, some 160 KiB. */
#define LIBDW_STACK ((uintptr_t)256 << 10)

/* Whether this thread has so much left. Not on a stack of the program's own, such as a fiber's. */
static bool has_stack(void)
{
    pthread_attr_t attributes;
    void *lowest = NULL;
    size_t size = 0;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (pthread_getattr_np(pthread_self(), &attributes))
        return false;
    int code = pthread_attr_getstack(&attributes, &lowest, &size);
    (void)pthread_attr_destroy(&attributes);
    uintptr_t left = here - (uintptr_t)lowest;
    return !code && here > (uintptr_t)lowest && left < size && left > LIBDW_STACK;
}

static Dwfl *open_libdw(void)
{
    if (!has_stack())
        return NULL;
    if (!atomic_load(&looked))
        find_libdw();
    Dwfl *dwfl = dw.there ? dw.begin(&dw.callbacks) : NULL;
    if (dwfl && (dw.report(dwfl, getpid()) || dw.report_end(dwfl, NULL, NULL))) {
        dw.end(dwfl);
        return NULL;
    }
    return dwfl;
}

struct symbols *symbols_open(void)
{
    struct symbols *symbols = pages_alloc(sizeof *symbols);
    if (symbols)
        *symbols = (struct symbols){.dwfl = open_libdw(), .own = own_base()};
    return symbols;
}

static void copy(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text);
}

void symbols_find(struct symbols *symbols, uint64_t address, struct symbol *symbol)
{
    Dl_info info = {0};
    uint64_t call = address - 1; /* a return address may be the first of the next function */
    *symbol = (struct symbol){.line = 0};
    snprintf(symbol->name, sizeof symbol->name, "%#llx", (unsigned long long)address);
    copy(symbol->file, sizeof symbol->file, "??");
    if (dladdr((const void *)(uintptr_t)call, &info)) {
        symbol->own = symbols->own && info.dli_fbase == symbols->own;
        if (info.dli_sname)
            copy(symbol->name, sizeof symbol->name, info.dli_sname);
        if (info.dli_fname)
            copy(symbol->file, sizeof symbol->file, info.dli_fname);
    }
    Dwfl_Module *module = symbols->dwfl && !symbol->own ? dw.module(symbols->dwfl, call) : NULL;
    const char *name = module ? dw.name(module, call) : NULL;
    Dwfl_Line *line = module ? dw.source(module, call) : NULL;
    const char *file = line ? dw.line(line, NULL, &symbol->line, NULL, NULL, NULL) : NULL;
    if (name)
        copy(symbol->name, sizeof symbol->name, name);
    if (file)
        copy(symbol->file, sizeof symbol->file, file);
}

void symbols_close(struct symbols *symbols)
{
    if (symbols && symbols->dwfl)
        dw.end(symbols->dwfl);
    pages_free(symbols, sizeof *symbols);
}

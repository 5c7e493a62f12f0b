/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Libraries with static thread-local storage are opened until the loader has none left; then the
 * library is not opened, and the loader says why. In a process of its own, where the library comes
 * first, it works on.
 *
 * crowd LIBRARY OTHER... */
#include "life.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void use(void *library)
{
    struct calls tarn;
    calls_find(library, &tarn);
    void *block = tarn.tarn_malloc(1000);
    NEED(block && tarn.tarn_free(block) == TARN_OK);
}

static int fill(int count, char **others)
{
    int opened = 0;
    while (opened < count && dlopen(others[opened], RTLD_NOW))
        opened++;
    return opened;
}

static void in_child(void (*function)(int, char **), int count, char **arguments)
{
    int status = 0;
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        function(count, arguments);
        fflush(NULL);
        _exit(0);
    }
    NEED(waitpid(child, &status, 0) == child && status == 0);
}

static void first_of_all(int count, char **arguments)
{
    void *library = open_library(arguments[1], RTLD_NOW);
    (void)fill(count - 2, arguments + 2);
    use(library);
}

static void last_of_all(int count, char **arguments)
{
    int opened = fill(count - 2, arguments + 2);
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (library) {
        NEED(opened == count - 2); /* the loader has as much as is wanted */
        use(library);
        return;
    }
    const char *error = dlerror();
    NEED(strstr(error, "TLS"));
    puts(error);
}

int main(int count, char **arguments)
{
    NEED(count > 2);
    in_child(first_of_all, count, arguments);
    in_child(last_of_all, count, arguments);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What files say of the machine, without a call of a driver. */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The first line of a file, or "". */
static const char *line_of(const char *root, const char *name, char *line, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, name);
    FILE *file = fopen(path, "re");
    line[0] = '\0';
    if (file && !fgets(line, (int)size, file))
        line[0] = '\0';
    if (file)
        fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

static bool is_there(const char *root, const char *name)
{
    char path[PATH_MAX];
    struct stat found;
    snprintf(path, sizeof path, "%s%s", root, name);
    return stat(path, &found) == 0;
}

static bool may_open(const char *root, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, name);
    return access(path, R_OK | W_OK) == 0;
}

static const char *container_of(const char *root)
{
    char line[256];
    const char *named = getenv("container");
    if (is_there(root, "/.dockerenv"))
        return "docker";
    if (is_there(root, "/run/.containerenv"))
        return "podman";
    if (is_there(root, "/.singularity.d"))
        return "apptainer";
    if (*line_of(root, "/run/systemd/container", line, sizeof line) || (named && *named))
        return "yes";
    return "";
}

/* The smallest memory limit of the process's control groups; 0: none. */
static long long group_memory(const char *root)
{
    char own[PATH_MAX], path[PATH_MAX + 64], line[64];
    long long least = 0;
    if (strncmp(line_of(root, "/proc/self/cgroup", own, sizeof own), "0::", 3) != 0)
        snprintf(own, sizeof own, "0::");
    char *group = own + 3;
    for (size_t length = strlen(group) + 1; length-- > 0;) {
        if (group[length] && group[length] != '/')
            continue;
        group[length] = '\0';
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
        long long limit = strtoll(line_of(root, path, line, sizeof line), NULL, 10);
        if (limit > 0 && (!least || limit < least))
            least = limit;
    }
    long long old = strtoll(
        line_of(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", line, sizeof line), NULL, 10);
    return !least && old > 0 && old < 1LL << 60 ? old : least;
}

/* How many GPUs of a vendor are on the PCI bus: display controllers and accelerators. */
static int on_bus(const char *root, const char *vendor)
{
    char path[PATH_MAX], name[512], line[32];
    int count = 0;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    DIR *folder = opendir(path);
    const struct dirent *entry = NULL;
    while (folder && (entry = readdir(folder))) {
        snprintf(name, sizeof name, "/sys/bus/pci/devices/%s/vendor", entry->d_name);
        if (strcmp(line_of(root, name, line, sizeof line), vendor) != 0)
            continue;
        snprintf(name, sizeof name, "/sys/bus/pci/devices/%s/class", entry->d_name);
        line_of(root, name, line, sizeof line);
        count += strncmp(line, "0x03", 4) == 0 || strncmp(line, "0x12", 4) == 0;
    }
    if (folder)
        closedir(folder);
    return count;
}

/* `failed`: the result of getrlimit(). */
static json_t *limit_of(int failed, const struct rlimit *limit)
{
    return failed || limit->rlim_cur == RLIM_INFINITY ? json_null()
                                                      : json_integer((json_int_t)limit->rlim_cur);
}

static const char *system_name(const char *root, char *name, size_t size)
{
    char path[PATH_MAX], line[256];
    snprintf(path, sizeof path, "%s/etc/os-release", root);
    FILE *file = fopen(path, "re");
    snprintf(name, size, "Linux");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "PRETTY_NAME=\"", 13) == 0)
            snprintf(name, size, "%.*s", (int)strcspn(line + 13, "\"\n"), line + 13);
    if (file)
        fclose(file);
    return name;
}

json_t *surroundings(const char *root)
{
    struct utsname kernel = {.release = "", .machine = ""};
    char name[256], nvidia[64], maps[32];
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY"), *container = container_of(root);
    (void)uname(&kernel);
    line_of(root, "/sys/module/nvidia/version", nvidia, sizeof nvidia);
    line_of(root, "/proc/sys/vm/max_map_count", maps, sizeof maps);
    struct rlimit locked, files;
    return json_pack(
        "{s:o, s:s, s:s, s:i, s:o, s:b, s:b, s:I, s:o, s:o, s:I, s:s, s:i, s:i, s:b, s:b, "
        "s:b, s:b}",
        "system", check_json_text(system_name(root, name, sizeof name)), "kernel", kernel.release,
        "processor", kernel.machine, "processors", (int)sysconf(_SC_NPROCESSORS_ONLN), "container",
        *container ? json_string(container) : json_null(), "wsl2", is_there(root, "/dev/dxg"),
        "mps", (pipe && *pipe) || is_there(root, "/tmp/nvidia-mps/control"), "group_memory",
        (json_int_t)group_memory(root), "locked_memory",
        limit_of(getrlimit(RLIMIT_MEMLOCK, &locked), &locked), "files",
        limit_of(getrlimit(RLIMIT_NOFILE, &files), &files), "mappings",
        (json_int_t)strtoll(maps, NULL, 10), "kernel_driver", nvidia, "nvidia_on_bus",
        on_bus(root, "0x10de"), "amd_on_bus", on_bus(root, "0x1002"), "nvidia_file",
        is_there(root, "/dev/nvidiactl"), "nvidia_allowed", may_open(root, "/dev/nvidiactl"),
        "amd_file", is_there(root, "/dev/kfd"), "amd_allowed", may_open(root, "/dev/kfd"));
}

static bool is_true(const json_t *found, const char *key)
{
    return json_is_true(json_object_get(found, key));
}

/* The first row that applies gives the reason. */
const char *surroundings_no_gpu(const json_t *found, const char **remedy)
{
    bool container = json_is_string(json_object_get(found, "container"));
    bool loaded = *json_string_value(json_object_get(found, "kernel_driver")) != '\0';
    bool nvidia = json_integer_value(json_object_get(found, "nvidia_on_bus")) > 0;
    bool amd = json_integer_value(json_object_get(found, "amd_on_bus")) > 0;
    bool file = is_true(found, "nvidia_file"), amd_file = is_true(found, "amd_file");
    const struct {
        bool so;
        const char *why, *remedy;
    } rows[] = {
        {is_true(found, "wsl2"), "this is WSL2, and no driver answers there",
         "install NVIDIA's driver on Windows, and see that /usr/lib/wsl/lib has libcuda.so.1"},
        {file && !is_true(found, "nvidia_allowed"), "this user may not open /dev/nvidiactl",
         "give the user access to /dev/nvidia* (ls -l names the group)"},
        {amd_file && !is_true(found, "amd_allowed"), "this user may not open /dev/kfd",
         "add the user to the groups render and video"},
        {container && !file && !amd_file && (loaded || nvidia || amd),
         "the container has no device files",
         "start it with --gpus all (NVIDIA), or with --device /dev/kfd --device /dev/dri (AMD)"},
        {loaded && !file, "the driver is loaded, and /dev/nvidiactl is missing",
         "run `nvidia-modprobe -u -c 0` as root"},
        {nvidia && !loaded, "there is an NVIDIA GPU, and its driver is not loaded",
         "install NVIDIA's driver, and `modprobe nvidia`"},
        {file, "the device files are there, and libcuda.so.1 does not answer",
         "install the driver's library of the kernel driver's version; in a container, set "
         "NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
        {amd && !amd_file, "there is an AMD GPU, and /dev/kfd is missing",
         "install ROCm's kernel driver"},
        {amd_file, "/dev/kfd is there, and libamdhip64.so does not answer",
         "install ROCm's HIP runtime"},
        {!nvidia && !amd && !loaded, "no GPU is on the PCI bus", "use a machine that has one"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].so) {
            *remedy = rows[i].remedy;
            return rows[i].why;
        }
    }
    return NULL;
}

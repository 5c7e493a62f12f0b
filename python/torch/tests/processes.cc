/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Tensors that go to other processes. Part of the program class.cc. */
#include "class.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>

/* Runs this program as `class SHIM received HANDLE OFFSET`, a process of its own. Its exit
 * status. */
static int receive_elsewhere(const ShareableHandle &shared)
{
    std::string hex, offset = std::to_string(shared.offset);
    for (unsigned char byte : shared.handle) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", byte);
        hex += digits;
    }
    pid_t child = fork();
    if (child == 0) {
        execl(own_path, own_path, shim_path, "received", hex.c_str(), offset.c_str(), nullptr);
        _exit(126);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* The other process: 0 where the block begins with "tarn", which becomes "torc"; 3 where it is not
 * there. */
int received(const std::string &hex, ptrdiff_t offset)
{
    auto &tarn = ours();
    std::string handle;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
        handle += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, 0));
    try {
        std::shared_ptr<void> base = tarn.getIpcDevPtr(handle);
        CHECK(tarn.getIpcDevPtr(handle) == base);
        char text[5] = "";
        void *data = static_cast<char *>(base.get()) + offset;
        CHECK(cudaMemcpy(text, data, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(std::string(text) == "tarn");
        CHECK(cudaMemcpy(data, "torc", 4, cudaMemcpyHostToDevice) == cudaSuccess);
        return 0;
    } catch (const std::exception &error) {
        CHECK(std::string(error.what()).find("keep it until its receivers have it") !=
                  std::string::npos ||
              std::string(error.what()).find("another version of tarn") != std::string::npos);
        return 3;
    }
}

void blocks_go_to_other_processes()
{
    auto &tarn = ours();
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, 0));
    DataPtr a = tarn.allocate(6 * MIB);
    char *middle = static_cast<char *>(a.get()) + 5 * MIB;
    CHECK(cudaMemcpy(middle, "tarn", 5, cudaMemcpyHostToDevice) == cudaSuccess);
    auto shared = tarn.shareIpcHandle(middle);
    CHECK(shared.offset == static_cast<ptrdiff_t>(5 * MIB));
    CHECK(tarn.shareIpcHandle(a.get()).handle == shared.handle &&
          tarn.shareIpcHandle(a.get()).offset == 0);
    CHECK(receive_elsewhere(shared) == 0);
    char text[5] = "";
    CHECK(cudaMemcpy(text, middle, 4, cudaMemcpyDeviceToHost) == cudaSuccess &&
          std::string(text) == "torc");

    auto garbled = shared;
    garbled.handle[5] ^= 1;
    CHECK(receive_elsewhere(garbled) == 3);
    auto unknown = shared;
    unknown.handle.back() ^= 1;
    CHECK(receive_elsewhere(unknown) == 3);
    a.clear(); /* freed: not offered any more */
    CHECK(receive_elsewhere(shared) == 3);
    DataPtr b = tarn.allocate(6 * MIB);
    CHECK(tarn.shareIpcHandle(b.get()).handle != shared.handle);
    b.clear();
    tarn.emptyCache({0, 0});
    CHECK(reserved() == 0); /* and not anchored either */
}

/* The name that a handle has, and another one. */
static socklen_t address_of(const std::string &handle, sockaddr_un *address)
{
    uint64_t number[2];
    std::memcpy(number, &handle[16], sizeof number);
    *address = {};
    address->sun_family = AF_UNIX;
    int length = std::snprintf(
        address->sun_path + 1, sizeof address->sun_path - 1, "tarn-torch-%016llx%016llx",
        static_cast<unsigned long long>(number[0]), static_cast<unsigned long long>(number[1]));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<size_t>(length));
}

static std::string with_other_name(std::string handle)
{
    handle[16] ^= 1;
    return handle;
}

static int listen_as(const std::string &handle)
{
    sockaddr_un address;
    socklen_t size = address_of(handle, &address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listener >= 0 && !bind(listener, reinterpret_cast<sockaddr *>(&address), size) &&
          !listen(listener, 8));
    return listener;
}

/* Connects to the sender of a handle, and says nothing. */
static int connect_to(const std::string &handle)
{
    sockaddr_un address;
    socklen_t size = address_of(handle, &address);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connection >= 0 && !connect(connection, reinterpret_cast<sockaddr *>(&address), size));
    return connection;
}

static bool is_listener(int file)
{
    int listens = 0;
    socklen_t size = sizeof listens;
    return !getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) && listens;
}

/* Another user who has the name of a sender that has ended gets no byte of a key, and is not
 * believed. */
void another_user_does_not_answer_for_a_sender()
{
    auto &tarn = ours();
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, 0));
    DataPtr a = tarn.allocate(6 * MIB);
    std::string handle = with_other_name(tarn.shareIpcHandle(a.get()).handle);
    int ends[2];
    if (geteuid() != 0)
        return; /* it takes a second user */
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte = 0;
        if (setgroups(0, nullptr) || setresgid(65534, 65534, 65534) ||
            setresuid(65534, 65534, 65534))
            _exit(2);
        int listener = listen_as(handle);
        if (write(ends[1], "x", 1) != 1)
            _exit(3);
        int connection = accept(listener, nullptr, nullptr);
        _exit(recv(connection, &byte, 1, 0) == 0 ? 0 : 4);
    }
    char byte;
    CHECK(child > 0 && read(ends[0], &byte, 1) == 1);
    THROWS(tarn.getIpcDevPtr(handle), "another user answers in its place");
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Another user who knows the name and the key of a tensor gets no byte of it. */
void another_user_receives_nothing()
{
    auto &tarn = ours();
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, 0));
    DataPtr a = tarn.allocate(6 * MIB);
    std::string handle = tarn.shareIpcHandle(a.get()).handle;
    if (geteuid() != 0)
        return; /* it takes a second user */
    for (uid_t user : {uid_t(0), uid_t(65534)}) {
        pid_t child = fork();
        if (child == 0) {
            char byte = 0;
            if (user && (setgroups(0, nullptr) || setresgid(user, user, user) ||
                         setresuid(user, user, user)))
                _exit(2);
            int connection = connect_to(handle);
            /* The key lies behind the name */
            CHECK(send(connection, &handle[32], 16, MSG_NOSIGNAL) == 16 || user);
            _exit(recv(connection, &byte, 1, 0) == 1 ? 1 : 0);
        }
        int status = 0;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == (user ? 0 : 1));
    }
}

/* Neither a receiver that says nothing, nor a sender that does not answer, keeps others waiting;
 * and a child of fork() does not listen. */
void silent_processes_hold_up_nobody()
{
    auto &tarn = ours();
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, 0));
    DataPtr a = tarn.allocate(6 * MIB);
    CHECK(cudaMemcpy(a.get(), "tarn", 5, cudaMemcpyHostToDevice) == cudaSuccess);
    auto shared = tarn.shareIpcHandle(a.get());
    auto start = std::chrono::steady_clock::now();
    int silent[100]; /* one in two begins a key */
    for (int &connection : silent) {
        connection = connect_to(shared.handle);
        CHECK(&connection - silent < 50 || send(connection, "x", 1, MSG_NOSIGNAL) == 1);
    }

    std::string nobody = with_other_name(shared.handle);
    int listener = listen_as(nobody);
    std::thread waits([&tarn, &nobody] {
        c10::DeviceGuard here(c10::Device(c10::kCUDA, 0));
        THROWS(tarn.getIpcDevPtr(nobody), "keep it until its receivers have it");
    });
    int connection = accept(listener, nullptr, nullptr);
    CHECK(connection >= 0);
    CHECK(tarn.getIpcDevPtr(shared.handle) != nullptr);
    CHECK(receive_elsewhere(shared) == 0);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(15));
    close(connection);
    waits.join();
    close(listener);
    for (int open : silent)
        close(open);

    int listeners = 0, status = 0;
    for (int file = 0; file < 1024; file++)
        listeners += is_listener(file);
    CHECK(listeners == 1);
    pid_t child = fork();
    if (child == 0) {
        for (int file = 0; file < 1024; file++)
            if (is_listener(file))
                _exit(1);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* What a process lets go of during a capture is unmapped after it. */
void an_import_ends_after_a_capture()
{
    auto &tarn = ours();
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, 0));
    DataPtr a = tarn.allocate(6 * MIB);
    std::shared_ptr<void> import = tarn.getIpcDevPtr(tarn.shareIpcHandle(a.get()).handle);
    void *mapped = import.get();
    tarn_stream captures = 0;
    CHECK(tarn_stream_lease(0, 0, &captures) == TARN_OK);
    CHECK(tarn_capture_begin(captures, TARN_CAPTURE_THREAD_LOCAL) == TARN_OK);
    import.reset();
    CHECK(tarn_capture_abort(captures) == TARN_OK);
    tarn.emptyCache({0, 0});
    CHECK(tarn_import_close(mapped) == TARN_ERROR_INVALID_POINTER);
    CHECK(tarn_stream_return(captures) == TARN_OK);
}

void a_pool_s_blocks_go_to_other_processes()
{
    auto &tarn = ours();
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, 0));
    MempoolId_t id = {0, 4};
    tarn.createOrIncrefPool(0, id);
    tarn.beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
    DataPtr a = tarn.allocate(MIB);
    tarn.endAllocateToPool(0, id);
    CHECK(cudaMemcpy(a.get(), "tarn", 5, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(receive_elsewhere(tarn.shareIpcHandle(a.get())) == 0);
}

void what_is_not_for_others_says_so()
{
    setenv("TARN_TORCH_SEND", "0", 1);
    auto &tarn = ours();
    DataPtr a = tarn.allocate(MIB);
    THROWS(tarn.shareIpcHandle(a.get()), "tarn_export_enable");
}

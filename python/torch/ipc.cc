/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sends tensors to other processes. The bytes that PyTorch passes along name a socket of the
 * sender, and a block. The receiver connects, and gets the block's physical memory as file
 * descriptors (tarn/share.h). One thread of the sender accepts connections and reads the keys of
 * all of them at once. Each connection with a key gets a thread for the answer, so that a silent
 * receiver delays no other. The threads start with the first tensor that is sent.
 *
 * All users of the machine can see the name of a socket, and can take it once the sender has ended.
 * So each side asks the system which user the other one is, before it sends the first byte.
 *
 * PyTorch does not free a sent tensor in the sending process while a receiver still has it. So a
 * block is offered until it is freed. */
#include "allocator.h"

#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

namespace tarn_torch
{

namespace
{
/* The bytes of a handle. PyTorch's own begin with the number 1 or 2. */
constexpr char mark[4] = {'t', 'a', 'r', 'n'};
constexpr uint32_t layout = 1;
struct Handle {
    char mark[4];
    uint32_t layout;
    int64_t sender; /* process id, for messages */
    uint64_t socket[2];
    uint64_t key[2];
};

/* The longest time that one side waits for the other: both are at the ends of one local socket, and
 * what is sent fits into its buffer. */
constexpr timeval patience = {30, 0};
/* answers at a time, to receivers that have sent a key; the next one waits */
constexpr int answers_most = 64;
/* connections without a key; beyond that the oldest is closed */
constexpr size_t callers_most = 256;

struct Share {
    tarn_share *share = nullptr;
    ~Share()
    {
        (void)tarn_share_close(share);
    }
};

struct Offer {
    Handle handle;
    size_t bytes;
    std::shared_ptr<Share> share;
};

struct Exports {
    std::mutex lock;
    int listener = -1;
    uint64_t socket[2] = {};
    std::unordered_map<void *, Offer> offers; /* by the block's address */
    std::atomic<int> count{0};                /* number of offers, read without the lock */
    std::atomic<int> answers{0};              /* threads that answer */
};

/* The lock is not held while another process is asked. */
struct Imports {
    std::mutex lock;
    std::unordered_map<std::string, std::weak_ptr<void>> known; /* by handle and device */
    /* what PyTorch has let go of during a capture, which forbids the wait before the close */
    std::vector<std::pair<DeviceIndex, void *>> ending;
};

class File
{
  public:
    explicit File(int number) : number(number) {}
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    ~File()
    {
        if (number >= 0)
            (void)close(number);
    }
    const int number;
};
} // namespace

static Exports &exports()
{
    static auto *one = new Exports; /* never destroyed: its thread uses it until the process ends */
    return *one;
}

static Imports &imports()
{
    static auto *one = new Imports;
    return *one;
}

static void random_number(uint64_t number[2])
{
    size_t done = 0;
    while (done < 2 * sizeof *number) {
        ssize_t more =
            getrandom(reinterpret_cast<char *>(number) + done, 2 * sizeof *number - done, 0);
        TORCH_CHECK(more > 0 || errno == EINTR,
                    "tarn: no random number for a tensor's handle: ", std::strerror(errno));
        done += more > 0 ? static_cast<size_t>(more) : 0;
    }
}

/* A socket name without a file, which ends with the process. */
static socklen_t address_of(const uint64_t number[2], sockaddr_un *address)
{
    *address = {};
    address->sun_family = AF_UNIX;
    int length = std::snprintf(
        address->sun_path + 1, sizeof address->sun_path - 1, "tarn-torch-%016llx%016llx",
        static_cast<unsigned long long>(number[0]), static_cast<unsigned long long>(number[1]));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<size_t>(length));
}

static void be_patient(int socket)
{
    (void)setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

/* True if the process at the other end belongs to this user, or did when it began to listen. */
static bool is_own_user(int connection)
{
    ucred peer = {};
    socklen_t length = sizeof peer;
    return !getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) &&
           length == sizeof peer && peer.uid == geteuid();
}

/* ---- The sender ---- */

/* A connection whose key has not arrived completely. */
struct Caller {
    std::shared_ptr<File> connection;
    std::chrono::steady_clock::time_point until;
    uint64_t key[2];
    size_t got; /* bytes of the key so far */
};

/* Sends a receiver the block that its key names. */
static void answer(int connection, const uint64_t key[2])
{
    be_patient(connection);
    std::shared_ptr<Share> share;
    {
        std::lock_guard<std::mutex> guard(exports().lock);
        for (const auto &[pointer, offer] : exports().offers)
            if (offer.handle.key[0] == key[0] && offer.handle.key[1] == key[1])
                share = offer.share;
    }
    if (share)
        (void)tarn_share_send(connection, share->share);
}

static void answer_beside(const Caller &caller)
{
    while (exports().answers >= answers_most)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    exports().answers++;
    try {
        std::thread([caller] {
            answer(caller.connection->number, caller.key);
            exports().answers--;
        }).detach();
    } catch (const std::exception &) { /* no thread can be started now */
        exports().answers--;
        answer(caller.connection->number, caller.key);
    }
}

/* Reads what has arrived of a key. True if the connection is kept. */
static bool listen_to(Caller &caller)
{
    ssize_t more =
        recv(caller.connection->number, reinterpret_cast<char *>(caller.key) + caller.got,
             sizeof caller.key - caller.got, MSG_DONTWAIT);
    if (more < 0 && (errno == EAGAIN || errno == EINTR))
        return std::chrono::steady_clock::now() < caller.until;
    caller.got += more > 0 ? static_cast<size_t>(more) : 0;
    if (caller.got == sizeof caller.key)
        answer_beside(caller);
    return more > 0 && caller.got < sizeof caller.key;
}

static void take(int listener, std::deque<Caller> &callers)
{
    int number = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (number < 0) {
        if (errno == EINTR || errno == ECONNABORTED)
            return;
        if (callers.empty()) /* no file is available now */
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        else
            callers.pop_front();
        return;
    }
    auto connection = std::make_shared<File>(number);
    if (!is_own_user(number))
        return;
    if (callers.size() == callers_most)
        callers.pop_front();
    callers.push_back({connection,
                       std::chrono::steady_clock::now() + std::chrono::seconds(patience.tv_sec),
                       {},
                       0});
}

static void serve(int listener)
{
    std::deque<Caller> callers;
    for (;;) {
        std::vector<pollfd> files{{listener, POLLIN, 0}};
        for (const Caller &caller : callers)
            files.push_back({caller.connection->number, POLLIN, 0});
        if (poll(files.data(), files.size(), callers.empty() ? -1 : 1000) < 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        for (auto caller = callers.begin(); caller != callers.end();)
            caller = listen_to(*caller) ? caller + 1 : callers.erase(caller);
        if (files[0].revents)
            take(listener, callers);
    }
}

/* Closes the socket in a child of fork(). Otherwise the child would keep the name, and receivers
 * would wait for nobody. A thread that is not in the child may hold the lock. */
static void forked()
{
    if (exports().listener >= 0)
        (void)close(exports().listener);
    exports().listener = -1;
}

static void listen_locked(Exports &all)
{
    if (all.listener >= 0)
        return;
    static const int at_fork = pthread_atfork(nullptr, nullptr, forked);
    TORCH_CHECK(at_fork == 0, "tarn: a socket for tensors that are sent: ", std::strerror(at_fork));
    sockaddr_un address;
    random_number(all.socket);
    socklen_t length = address_of(all.socket, &address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TORCH_CHECK(listener >= 0 && !bind(listener, reinterpret_cast<sockaddr *>(&address), length) &&
                    !listen(listener, SOMAXCONN),
                "tarn: a socket for tensors that are sent: ", std::strerror(errno));
    /* The program's own threads handle signals. */
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    try {
        std::thread(serve, listener).detach();
    } catch (const std::exception &error) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        close(listener);
        TORCH_CHECK(false, "tarn: a thread for tensors that are sent: ", error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    all.listener = listener;
}

ShareableHandle Allocator::shareIpcHandle(void *pointer)
{
    tarn_block_info info = {};
    info.size = sizeof info;
    tarn_status status = tarn_pointer_info_get(pointer, &info);
    if (status == TARN_ERROR_INVALID_POINTER && previous)
        return previous->shareIpcHandle(pointer);
    check(status, "a tensor for another process");

    Exports &all = exports();
    std::lock_guard<std::mutex> guard(all.lock);
    auto found = all.offers.find(info.base);
    if (found == all.offers.end() || found->second.bytes != info.usable_size) {
        listen_locked(all);
        Offer offer = {{}, info.usable_size, std::make_shared<Share>()};
        std::memcpy(offer.handle.mark, mark, sizeof mark);
        offer.handle.layout = layout;
        offer.handle.sender = getpid();
        std::memcpy(offer.handle.socket, all.socket, sizeof all.socket);
        random_number(offer.handle.key);
        check(tarn_export(info.base, &offer.share->share), "a tensor for another process");
        found = all.offers.insert_or_assign(info.base, std::move(offer)).first;
        all.count = static_cast<int>(all.offers.size());
    }
    auto offset = static_cast<char *>(pointer) - static_cast<char *>(info.base);
    return {offset,
            std::string(reinterpret_cast<const char *>(&found->second.handle), sizeof(Handle))};
}

bool any_offered()
{
    return exports().count.load(std::memory_order_relaxed) > 0;
}

void withdraw(void *pointer)
{
    Exports &all = exports();
    std::lock_guard<std::mutex> guard(all.lock);
    all.offers.erase(pointer);
    all.count = static_cast<int>(all.offers.size());
}

/* ---- The receiver ---- */

static tarn_share *fetch(const Handle &handle)
{
    sockaddr_un address;
    socklen_t length = address_of(handle.socket, &address);
    File connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    be_patient(connection.number);
    bool connected = connection.number >= 0 &&
                     !connect(connection.number, reinterpret_cast<sockaddr *>(&address), length);
    TORCH_CHECK(!connected || is_own_user(connection.number), "tarn: the process ", handle.sender,
                ", which sent a tensor, has ended: another user answers in its place");
    TORCH_CHECK(connected && send(connection.number, handle.key, sizeof handle.key, MSG_NOSIGNAL) ==
                                 sizeof handle.key,
                "tarn: the process ", handle.sender, ", which sent a tensor, does not answer (",
                std::strerror(errno),
                "). It has ended, or runs in a container with a network of its own");
    tarn_share *share = nullptr;
    tarn_status status = tarn_share_receive(connection.number, &share);
    TORCH_CHECK(status == TARN_OK, "tarn: the process ", handle.sender,
                " has no such tensor, or not any more: keep it ", "until its receivers have it (",
                tarn_last_error(), ")");
    return share;
}

/* False during a capture: then it is to be tried again. */
static bool try_close(DeviceIndex device, void *pointer)
{
    tarn_status status = tarn_device_synchronize(device); /* wait for work that uses it */
    if (status == TARN_OK)
        status = tarn_import_close(pointer);
    if (status == TARN_ERROR_CAPTURE)
        return false;
    if (status != TARN_OK) {
        TORCH_WARN_ONCE("tarn: the memory of another process stays mapped: ", tarn_last_error());
    }
    return true;
}

void end_imports()
{
    Imports &all = imports();
    std::vector<std::pair<DeviceIndex, void *>> ending;
    {
        std::lock_guard<std::mutex> guard(all.lock);
        ending.swap(all.ending);
    }
    for (const auto &[device, pointer] : ending)
        if (!try_close(device, pointer)) {
            std::lock_guard<std::mutex> guard(all.lock);
            all.ending.emplace_back(device, pointer);
        }
}

static void close_import(DeviceIndex device, void *pointer)
{
    Imports &all = imports();
    {
        std::lock_guard<std::mutex> guard(all.lock);
        all.ending.emplace_back(device, pointer);
    }
    end_imports();
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string bytes)
{
    Handle handle;
    if (bytes.size() < sizeof mark || std::memcmp(bytes.data(), mark, sizeof mark) != 0) {
        TORCH_CHECK(previous, "tarn: no allocator knows this handle");
        if (!previous->initialized())
            previous->init(static_cast<int>(devices.size()));
        return previous->getIpcDevPtr(std::move(bytes));
    }
    TORCH_CHECK(bytes.size() == sizeof handle, "tarn: a tensor's handle of ", bytes.size(),
                " bytes, not ", sizeof handle);
    std::memcpy(&handle, bytes.data(), sizeof handle);
    TORCH_CHECK(
        handle.layout == layout,
        "tarn: the tensor was sent by another version of tarn: install the same in both processes");

    DeviceIndex device = c10::cuda::current_device();
    Imports &all = imports();
    end_imports();
    std::string name = bytes + static_cast<char>(device);
    auto known = [&all, &name]() -> std::shared_ptr<void> {
        auto there = all.known.find(name);
        return there == all.known.end() ? nullptr : there->second.lock();
    };
    {
        std::lock_guard<std::mutex> guard(all.lock);
        if (auto kept = known())
            return kept;
    }
    tarn_share *share = fetch(handle);
    void *pointer = nullptr;
    tarn_status status = tarn_import(share, device, &pointer);
    (void)tarn_share_close(share);
    check(status, "a tensor of another process");
    /* Ends after the lock: if another thread imported it first, this import is closed again. */
    std::shared_ptr<void> import(pointer, [device](void *gone) { close_import(device, gone); });
    std::lock_guard<std::mutex> guard(all.lock);
    if (auto kept = known())
        return kept;
    for (auto old = all.known.begin(); old != all.known.end();)
        old = old->second.expired() ? all.known.erase(old) : std::next(old);
    all.known[name] = import;
    return import;
}

} // namespace tarn_torch

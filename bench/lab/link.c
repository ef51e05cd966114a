/* Two network namespaces joined by a link that delays packets, for `cargo xtask lab`.
 *
 *   link DELAY_US MTU COMMAND [ARGUMENT]...
 *
 * Creates the namespaces `near` and `far`, each with a TUN device of this MTU, and copies packets between the devices,
 * each DELAY_US microseconds after it was read. COMMAND runs in `near`. It finds the file of `far` for nsenter in the
 * environment variable LAB_FAR. In `far` the address 127.0.0.1 is that of `near`: servers that listen on loopback in
 * `near` are reached through the link.
 *
 * Exits with COMMAND's code, or with 77 if this system allows no namespaces or no TUN devices.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    NOT_ALLOWED = 77,
    PACKET_MAX = 65535,
    /* Packets in flight in one direction. More are dropped, as a real link's queue does. */
    QUEUE = 4096,
};

struct packet {
    uint64_t due;
    ssize_t length;
    uint8_t *bytes;
};

struct direction {
    int from, to;
    struct packet queue[QUEUE];
    size_t head, count;
};

static struct direction directions[2];

static void not_allowed(const char *what) {
    fprintf(stderr, "link: %s: %s\n", what, strerror(errno));
    exit(NOT_ALLOWED);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void write_file(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, text, strlen(text)) < 0) not_allowed(path);
    close(file);
}

/* Users other than root get a user namespace in which they may configure networks. */
static void become_root(void) {
    char map[64];
    unsigned user = getuid(), group = getgid();
    if (user == 0) return;
    if (unshare(CLONE_NEWUSER) != 0) not_allowed("user namespace");
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", user);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", group);
    write_file("/proc/self/gid_map", map);
}

static void run(const char *command) {
    int status = system(command);
    if (status != 0) {
        fprintf(stderr, "link: `%s` failed\n", command);
        exit(NOT_ALLOWED);
    }
}

/* Moves this process into a new network namespace and returns its TUN device. */
static int new_namespace(int mtu, const char *own, const char *other) {
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    char command[256];
    int device;
    if (unshare(CLONE_NEWNET) != 0) not_allowed("network namespace");
    device = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (device < 0) not_allowed("/dev/net/tun");
    strcpy(request.ifr_name, "lab0");
    if (ioctl(device, TUNSETIFF, &request) != 0) not_allowed("TUN device");
    write_file("/proc/sys/net/ipv4/conf/all/route_localnet", "1");
    write_file("/proc/sys/net/ipv4/conf/lab0/route_localnet", "1");
    snprintf(command, sizeof command, "ip addr add %s peer %s dev lab0 && ip link set lab0 mtu %d up", own, other, mtu);
    run(command);
    return device;
}

static void take(struct direction *direction, uint64_t delay) {
    static uint8_t bytes[PACKET_MAX];
    ssize_t length;
    while ((length = read(direction->from, bytes, sizeof bytes)) > 0) {
        struct packet *packet;
        if (direction->count == QUEUE) continue;
        packet = &direction->queue[(direction->head + direction->count) % QUEUE];
        packet->bytes = malloc((size_t)length);
        if (!packet->bytes) continue;
        memcpy(packet->bytes, bytes, (size_t)length);
        packet->length = length;
        packet->due = now_ns() + delay;
        direction->count++;
    }
}

/* Delivers the packets that are due, and returns when the next one is. */
static uint64_t deliver(struct direction *direction) {
    while (direction->count > 0) {
        struct packet *packet = &direction->queue[direction->head];
        if (packet->due > now_ns()) return packet->due;
        /* A packet that the device does not take is lost, and TCP sends it again. */
        if (write(direction->to, packet->bytes, (size_t)packet->length) < 0 && errno == EINTR) continue;
        free(packet->bytes);
        direction->head = (direction->head + 1) % QUEUE;
        direction->count--;
    }
    return UINT64_MAX;
}

static int forward(pid_t command, uint64_t delay) {
    struct pollfd polls[2] = {{directions[0].from, POLLIN, 0}, {directions[1].from, POLLIN, 0}};
    int status;
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
        uint64_t first = deliver(&directions[0]), second = deliver(&directions[1]), now = now_ns();
        uint64_t due = first < second ? first : second;
        uint64_t wait = due == UINT64_MAX ? 100000000u : due > now ? due - now : 0;
        struct timespec timeout = {(time_t)(wait / 1000000000u), (long)(wait % 1000000000u)};
        if (ppoll(polls, 2, &timeout, NULL) > 0) {
            take(&directions[0], delay);
            take(&directions[1], delay);
        } else if (waitpid(command, &status, WNOHANG) == command) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }
    }
}

int main(int count, char **arguments) {
    int mtu, near, far, near_device, far_device;
    uint64_t delay;
    char path[64];
    pid_t command;
    if (count < 4) {
        fprintf(stderr, "usage: link DELAY_US MTU COMMAND [ARGUMENT]...\n");
        return 2;
    }
    delay = strtoull(arguments[1], NULL, 10) * 1000;
    mtu = atoi(arguments[2]);
    become_root();
    far_device = new_namespace(mtu, "10.99.0.2", "10.99.0.1");
    run("ip route add 127.0.0.1/32 dev lab0 src 10.99.0.2");
    far = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    near_device = new_namespace(mtu, "10.99.0.1", "10.99.0.2");
    run("ip link set lo up");
    near = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (far < 0 || near < 0) not_allowed("/proc/self/ns/net");
    directions[0].from = directions[1].to = near_device;
    directions[0].to = directions[1].from = far_device;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), far);
    setenv("LAB_FAR", path, 1);
    command = fork();
    if (command == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        execvp(arguments[3], arguments + 3);
        fprintf(stderr, "link: %s: %s\n", arguments[3], strerror(errno));
        _exit(127);
    }
    if (command < 0) {
        perror("link: fork");
        return 1;
    }
    return forward(command, delay);
}

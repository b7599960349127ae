/* Preloaded into a process. While the file named by SYNC_FAULT exists, every sync to the disk fails. With SYNC_FAULT_AT,
   only that one of the syncs fails, the first being 1. The path of every file that is synced is appended to SYNC_TRACE,
   after an exclamation mark if the sync fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int syncs;

static int refused(void) {
    const char *flag = getenv("SYNC_FAULT"), *at = getenv("SYNC_FAULT_AT");
    int number = __sync_add_and_fetch(&syncs, 1);
    return (flag != NULL && access(flag, F_OK) == 0) || (at != NULL && atoi(at) == number);
}

static void trace(int fd, int failed) {
    const char *file = getenv("SYNC_TRACE");
    char link[64], line[4100];
    ssize_t length;
    int output;
    if (file == NULL || (output = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600)) < 0)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, line + 1, sizeof line - 2);
    line[0] = failed ? '!' : ' ';
    line[length + 1] = '\n';
    if (length > 0 && write(output, line, length + 2) < 0)
        perror("SYNC_TRACE");
    close(output);
}

static int sync_with(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int failed = refused();
    trace(fd, failed);
    if (failed) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fsync(int fd) { return sync_with("fsync", fd); }

int fdatasync(int fd) { return sync_with("fdatasync", fd); }

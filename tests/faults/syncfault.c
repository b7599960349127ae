/* Preloaded into a process: while the file named by SYNC_FAULT exists, every sync to the disk fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int refused(void) {
    const char *flag = getenv("SYNC_FAULT");
    return flag != NULL && access(flag, F_OK) == 0;
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (refused()) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (refused()) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

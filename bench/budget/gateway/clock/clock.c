// Preloaded into a service: adds an offset in seconds, from the file that BUDGETBENCH_CLOCK names, to the
// time of day. Clocks that only measure stay as they are.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none, *offset = &none;

__attribute__((constructor)) static void open_file(void) {
	const char *path = getenv("BUDGETBENCH_CLOCK");
	int fd = path ? open(path, O_RDONLY) : -1;
	if (fd < 0) return;
	void *map = mmap(0, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
	if (map != MAP_FAILED) offset = map;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int result = syscall(SYS_clock_gettime, id, ts);
	if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) ts->tv_sec += *offset;
	return result;
}

int gettimeofday(struct timeval *tv, void *zone) {
	struct timespec ts;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (out) *out = ts.tv_sec;
	return ts.tv_sec;
}

/* A wall clock that tests set: preloaded before libc.
 *
 * The file CLOCK_FILE holds the seconds that the clock is ahead; the monotonic clocks are
 * as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long ahead(void)
{
	char text[32];
	const char *file = getenv("CLOCK_FILE");
	int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t got;

	if (fd < 0)
		return 0;
	got = read(fd, text, sizeof text - 1);
	close(fd);
	text[got < 0 ? 0 : got] = 0;
	return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	int failed;

	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT,
								    "clock_gettime");
	failed = real(clock, now);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += ahead();
	return failed;
}

time_t time(time_t *where)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (where)
		*where = now.tv_sec;
	return now.tv_sec;
}

/*
 * Loaded before perftest's libraries, where only whether it works counts, not what it measures.
 *
 * perftest compares the processor's clock with the time of day for a fifth of a second in each report, busily: with all
 * its sizes that takes longer than all else. So its time of day runs 16 times as fast.
 *
 * It uses the request builder with cards only that it knows. With SHIM_PRETENDS a device says that it is a ConnectX-4.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec real;
	unsigned long long ns;

	(void)zone;
	clock_gettime(CLOCK_MONOTONIC, &real);
	ns = 16 * (real.tv_sec * 1000000000ull + real.tv_nsec);
	now->tv_sec = ns / 1000000000;
	now->tv_usec = ns / 1000 % 1000000;
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
	int (*real)(struct ibv_context *, struct ibv_device_attr *) = dlsym(RTLD_NEXT, "ibv_query_device");
	int status = real(context, attributes);

	if (status == 0 && getenv("SHIM_PRETENDS")) {
		attributes->vendor_id = 0x02c9;
		attributes->vendor_part_id = 4115;
	}
	return status;
}

/* A librdmacm that lies, with as much of libibverbs as it takes to be opened. Binding an id to a port plays the trick of
 * that number: it makes the next event, or spoils the id. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct channel {
	int fd;
	int first, behind;
	struct event *waiting[16];
};

struct id {
	void *verbs;
	struct channel *channel;
	void *context;
	void *qp;
	unsigned char source[128], destination[128], rest_of_route[56];
	int space;
	unsigned char rest[68];
	/* Not the program's. */
	int unacknowledged;
};

struct event {
	struct id *id, *listener;
	int number, status;
	const void *private_data;
	unsigned char private_data_len, more[47];
	/* Not the program's. */
	struct id *owner;
};

_Static_assert(__builtin_offsetof(struct id, space) == 344, "as in rdma/rdma_cma.h");
_Static_assert(__builtin_offsetof(struct id, unacknowledged) == 416, "as in rdma/rdma_cma.h");
_Static_assert(__builtin_offsetof(struct event, owner) == 80, "as in rdma/rdma_cma.h");

void *ibv_get_device_list(int *count) { return *count = 0, NULL; }
void ibv_free_device_list(void *list) { (void)list; }
void *ibv_open_device(void *device) { return (void)device, NULL; }
int ibv_close_device(void *context) { return (void)context, 0; }

struct channel *rdma_create_event_channel(void)
{
	struct channel *channel = calloc(1, sizeof *channel);
	channel->fd = eventfd(0, EFD_SEMAPHORE);
	return channel;
}

void rdma_destroy_event_channel(struct channel *channel)
{
	close(channel->fd);
	free(channel);
}

static struct id *make(struct channel *channel, void *context, int space)
{
	struct id *id = calloc(1, sizeof *id);
	id->channel = channel;
	id->context = context;
	id->space = space;
	return id;
}

int rdma_create_id(struct channel *channel, struct id **id, void *context, int space)
{
	/* An id with this context is none. */
	*id = context == (void *)0xdead ? NULL : make(channel, context, space);
	return 0;
}

int rdma_destroy_id(struct id *id)
{
	if (id->unacknowledged)
		return errno = EBUSY, -1;
	free(id);
	return 0;
}

int rdma_get_cm_event(struct channel *channel, struct event **event)
{
	unsigned long long one;
	if (read(channel->fd, &one, sizeof one) != sizeof one)
		return -1;
	*event = channel->waiting[channel->first++ % 16];
	return 0;
}

int rdma_ack_cm_event(struct event *event)
{
	if (event->owner)
		event->owner->unacknowledged--;
	memset(event, 0x5a, sizeof *event);
	free(event);
	return 0;
}

static void tell(struct channel *channel, struct event *event)
{
	unsigned long long one = 1;
	channel->waiting[channel->behind++ % 16] = event;
	if (write(channel->fd, &one, sizeof one) != sizeof one)
		abort();
}

static struct event *about(struct id *id, int number)
{
	struct event *event = calloc(1, sizeof *event);
	event->id = event->owner = id;
	event->number = number;
	id->unacknowledged++;
	return event;
}

static struct event *request(struct id *listener, struct id *new)
{
	struct event *event = about(listener, 4);
	event->listener = listener;
	event->id = new;
	return event;
}

int rdma_bind_addr(struct id *id, const unsigned char *address)
{
	static const char data[] = "ten bytes!";
	struct channel *channel = id->channel;
	struct event *event;
	switch (address[2] << 8 | address[3]) {
	case 1:
		tell(channel, about(id, 77));
		return 0;
	case 2:
		tell(channel, about(id, -1));
		return 0;
	case 3:
		event = about(id, 9);
		event->id = NULL;
		tell(channel, event);
		return 0;
	case 4:
		event = request(id, make(channel, id->context, id->space));
		event->listener = NULL;
		free(event->id);
		tell(channel, event);
		return 0;
	case 5:
		tell(channel, request(id, id));
		return 0;
	case 6:
		event = request(id, make(channel, id->context, id->space));
		event->private_data_len = 200;
		tell(channel, event);
		return 0;
	case 7:
		tell(channel, NULL);
		return 0;
	case 8:
		event = about(id, 5);
		event->private_data = data;
		event->private_data_len = 10;
		tell(channel, event);
		return 0;
	case 9:
		tell(channel, about(id, 0));
		return 0;
	case 10:
		memset(id->source, 0xff, sizeof id->source);
		memset(id->destination, 0xff, sizeof id->destination);
		return 0;
	case 11:
		return -1;
	default:
		memcpy(id->source, address, 16);
		return 0;
	}
}

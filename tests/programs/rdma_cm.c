/* What librdmacm promises beyond what the programs of rdmacm-utils try: wrong arguments, errno, descriptors, private data,
 * libraries that are opened while a program runs, and children of fork. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the process with status 1 and the words after the condition, unless that holds. */
#define CHECK(condition, ...)                                                                                          \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "process %d, line %d: ", getpid(), __LINE__);                                  \
			fprintf(stderr, __VA_ARGS__);                                                                  \
			fputc('\n', stderr);                                                                           \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* -1 with this errno. */
#define FAILS(number, call)                                                                                            \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		int returned = (call);                                                                                 \
		CHECK(returned == -1 && errno == (number), "%s: returned %d, errno %d (%s), and not %s", #call,           \
		      returned, errno, strerror(errno), #number);                                                      \
	} while (0)

#define WORKS(call)                                                                                                    \
	do {                                                                                                           \
		int returned = (call);                                                                                 \
		CHECK(returned == 0, "%s: returned %d, errno %d (%s)", #call, returned, errno, strerror(errno));          \
	} while (0)

static struct sockaddr_in at(const char *ip, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	inet_pton(AF_INET, ip, &address.sin_addr);
	return address;
}

#define ADDRESS(variable) ((struct sockaddr *)&(variable))

static struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *event;
	WORKS(rdma_get_cm_event(channel, &event));
	CHECK(event->event == type && event->status == status, "%s with status %d came, not %s with %d",
	      rdma_event_str(event->event), event->status, rdma_event_str(type), status);
	return event;
}

static void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	WORKS(rdma_ack_cm_event(expect(channel, type, 0)));
}

/* Every call with something that is no id. */
static void no_id(struct rdma_cm_id *wrong, struct rdma_event_channel *channel)
{
	int (*write_event)(struct rdma_cm_id *, int, int, uint64_t) = dlsym(RTLD_DEFAULT, "rdma_write_cm_event");
	int (*resolve)(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *) =
		dlsym(RTLD_DEFAULT, "rdma_resolve_addrinfo");
	int (*query)(struct rdma_cm_id *, struct rdma_addrinfo **) = dlsym(RTLD_DEFAULT, "rdma_query_addrinfo");
	struct sockaddr_in here = at("127.0.0.1", 0);
	struct rdma_cm_join_mc_attr_ex group = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS, .addr = ADDRESS(here)};
	struct rdma_conn_param param = {.qp_num = 7};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
	struct ibv_qp_init_attr_ex init_ex = {.qp_type = IBV_QPT_RC};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq_init_attr_ex srq_ex = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	struct ibv_ece ece = {0};
	struct rdma_addrinfo *found;
	struct rdma_cm_id *request;
	uint8_t byte = 0;
	int mask;

	FAILS(EINVAL, rdma_bind_addr(wrong, ADDRESS(here)));
	FAILS(EINVAL, rdma_listen(wrong, 1));
	FAILS(EINVAL, rdma_resolve_addr(wrong, NULL, ADDRESS(here), 1));
	FAILS(EINVAL, rdma_resolve_route(wrong, 1));
	FAILS(EINVAL, resolve(wrong, "127.0.0.1", "1", NULL));
	FAILS(EINVAL, query(wrong, &found));
	FAILS(EINVAL, rdma_connect(wrong, NULL));
	FAILS(EINVAL, rdma_connect(wrong, &param));
	FAILS(EINVAL, rdma_accept(wrong, NULL));
	FAILS(EINVAL, rdma_accept(wrong, &param));
	FAILS(EINVAL, rdma_establish(wrong));
	FAILS(EINVAL, rdma_reject(wrong, "no", 2));
	FAILS(EINVAL, rdma_reject_ece(wrong, "no", 2));
	FAILS(EINVAL, rdma_notify(wrong, IBV_EVENT_COMM_EST));
	FAILS(EINVAL, rdma_disconnect(wrong));
	FAILS(EINVAL, rdma_init_qp_attr(wrong, &attr, &mask));
	FAILS(EINVAL, rdma_create_qp(wrong, NULL, &init));
	FAILS(EINVAL, rdma_create_qp_ex(wrong, &init_ex));
	FAILS(EINVAL, rdma_create_srq(wrong, NULL, &srq));
	FAILS(EINVAL, rdma_create_srq_ex(wrong, &srq_ex));
	FAILS(EINVAL, rdma_get_request(wrong, &request));
	FAILS(EINVAL, rdma_migrate_id(wrong, channel));
	FAILS(EINVAL, rdma_migrate_id(wrong, NULL));
	FAILS(EINVAL, rdma_join_multicast(wrong, ADDRESS(here), NULL));
	FAILS(EINVAL, rdma_join_multicast_ex(wrong, &group, NULL));
	FAILS(EINVAL, rdma_leave_multicast(wrong, ADDRESS(here)));
	FAILS(EINVAL, rdma_set_option(wrong, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
	FAILS(EINVAL, rdma_set_local_ece(wrong, &ece));
	FAILS(EINVAL, rdma_get_remote_ece(wrong, &ece));
	FAILS(EINVAL, write_event(wrong, 18, 0, 0));
	FAILS(EINVAL, rdma_destroy_id(wrong));
	CHECK(!rdma_get_src_port(wrong) && !rdma_get_dst_port(wrong), "what is no id has no port");
	rdma_destroy_qp(wrong);
	rdma_destroy_srq(wrong);
	rdma_destroy_ep(wrong);
}

/* InfiniBand's own addresses, wherever addresses are taken. */
static void addresses_of_infiniband(void)
{
	enum { OF_INFINIBAND = 27 };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage other = {.ss_family = OF_INFINIBAND};
	struct sockaddr_in here = at("127.0.0.1", 0), group = at("239.1.2.3", 0);
	struct rdma_cm_join_mc_attr_ex join = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS, .addr = ADDRESS(other)};
	struct rdma_addrinfo *found, hints = {.ai_port_space = RDMA_PS_TCP, .ai_dst_addr = ADDRESS(other),
					      .ai_dst_len = sizeof other};
	struct rdma_cm_id *id, *endpoint = (void *)1;

	WORKS(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
	FAILS(EAFNOSUPPORT, rdma_bind_addr(id, ADDRESS(other)));
	FAILS(EAFNOSUPPORT, rdma_resolve_addr(id, NULL, ADDRESS(other), 100));
	FAILS(EAFNOSUPPORT, rdma_resolve_addr(id, ADDRESS(other), ADDRESS(here), 100));
	WORKS(rdma_bind_addr(id, ADDRESS(here)));
	FAILS(EAFNOSUPPORT, rdma_join_multicast(id, ADDRESS(other), NULL));
	FAILS(EAFNOSUPPORT, rdma_join_multicast_ex(id, &join, NULL));
	FAILS(EAFNOSUPPORT, rdma_leave_multicast(id, ADDRESS(other)));
	WORKS(rdma_join_multicast(id, ADDRESS(group), NULL));
	pass(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	WORKS(rdma_destroy_id(id));

	FAILS(EAFNOSUPPORT, rdma_getaddrinfo(NULL, NULL, &hints, &found));
	hints.ai_dst_addr = NULL, hints.ai_src_addr = ADDRESS(other), hints.ai_flags = RAI_PASSIVE;
	FAILS(EAFNOSUPPORT, rdma_getaddrinfo(NULL, NULL, &hints, &found));
	FAILS(EAFNOSUPPORT, rdma_getaddrinfo("127.0.0.1", "1", &hints, &found));
	hints.ai_src_addr = NULL, hints.ai_family = OF_INFINIBAND, hints.ai_flags = RAI_FAMILY;
	CHECK(rdma_getaddrinfo("127.0.0.1", "1", &hints, &found) == EAI_FAMILY, "the family of the hints");
	struct rdma_addrinfo of_infiniband[] = {
		{.ai_port_space = RDMA_PS_TCP, .ai_dst_addr = ADDRESS(other), .ai_qp_type = IBV_QPT_RC},
		{.ai_port_space = RDMA_PS_TCP, .ai_src_addr = ADDRESS(other), .ai_dst_addr = ADDRESS(here)},
		{.ai_port_space = RDMA_PS_TCP, .ai_src_addr = ADDRESS(other), .ai_flags = RAI_PASSIVE},
		{.ai_port_space = RDMA_PS_TCP, .ai_family = OF_INFINIBAND, .ai_dst_addr = ADDRESS(here)},
	};
	for (int i = 0; i < 4; i++)
		FAILS(EAFNOSUPPORT, rdma_create_ep(&endpoint, &of_infiniband[i], NULL, NULL));
	CHECK(endpoint == (void *)1, "a failed call leaves the place for its result alone");
	rdma_destroy_event_channel(channel);
}

static void wrong_arguments(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id, *dead;
	struct rdma_cm_event *event;
	struct sockaddr_in here = at("127.0.0.1", 0);
	struct sockaddr_storage other = {0};
	int mask;

	FAILS(EINVAL, rdma_create_id(channel, NULL, NULL, RDMA_PS_TCP));
	FAILS(EINVAL, rdma_create_id(channel, &id, NULL, 77));
	WORKS(rdma_create_id(channel, &dead, NULL, RDMA_PS_TCP));
	WORKS(rdma_destroy_id(dead));
	WORKS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	struct rdma_cm_id *wrong[] = {NULL, (void *)0x1235, (void *)channel, dead == id ? NULL : dead};
	for (int i = 0; i < 4; i++)
		no_id(wrong[i], channel);
	FAILS(EINVAL, rdma_bind_addr(id, NULL));
	other.ss_family = AF_UNIX;
	FAILS(EINVAL, rdma_bind_addr(id, ADDRESS(other)));
	FAILS(EINVAL, rdma_resolve_addr(id, NULL, NULL, 100));
	FAILS(EINVAL, rdma_resolve_addr(id, NULL, ADDRESS(here), -1));
	FAILS(EINVAL, rdma_init_qp_attr(id, NULL, &mask));
	FAILS(EINVAL, rdma_create_qp(id, NULL, NULL));
	FAILS(EINVAL, rdma_get_request(id, &dead));
	FAILS(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1));
	FAILS(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &mask, 4));
	FAILS(ENOSYS, rdma_set_option(id, RDMA_OPTION_ID, 99, &mask, 4));
	FAILS(EINVAL, rdma_get_cm_event(NULL, &event));
	FAILS(EINVAL, rdma_get_cm_event(channel, NULL));
	FAILS(EINVAL, rdma_get_cm_event((void *)id, &event));
	FAILS(EINVAL, rdma_create_id((void *)id, &dead, NULL, RDMA_PS_TCP));
	FAILS(EINVAL, rdma_migrate_id(id, (void *)id));
	FAILS(EINVAL, rdma_ack_cm_event(NULL));
	FAILS(EINVAL, rdma_ack_cm_event((void *)channel));
	FAILS(EINVAL, rdma_getaddrinfo(NULL, NULL, NULL, NULL));
	WORKS(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(NULL);
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED"), "the name of an event");
}

static void addresses(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *a, *b;
	struct rdma_cm_event *event;
	struct sockaddr_in here = at("127.0.0.1", 0), nowhere = at("192.0.2.55", 1);
	struct ibv_device_attr attr;
	int count, found = 0, on = 1;

	FAILS(EAGAIN, (fcntl(channel->fd, F_SETFL, O_NONBLOCK), rdma_get_cm_event(channel, &event)));
	WORKS(rdma_create_id(channel, &a, &found, RDMA_PS_TCP));
	WORKS(rdma_create_id(channel, &b, NULL, RDMA_PS_TCP));
	CHECK(a->context == &found && a->channel == channel && a->ps == RDMA_PS_TCP && !a->verbs, "a new id");
	WORKS(rdma_bind_addr(a, ADDRESS(here)));
	here.sin_port = rdma_get_src_port(a);
	CHECK(here.sin_port && a->verbs && a->pd && a->port_num == 1, "a bound id");
	FAILS(EADDRINUSE, rdma_bind_addr(b, ADDRESS(here)));
	WORKS(rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
	FAILS(EADDRINUSE, rdma_bind_addr(b, ADDRESS(here)));
	WORKS(rdma_resolve_addr(b, NULL, ADDRESS(nowhere), 100));
	struct pollfd waiting = {.fd = channel->fd, .events = POLLIN};
	CHECK(poll(&waiting, 1, 5000) == 1, "the channel's descriptor is readable");
	event = expect(channel, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
	CHECK(event->id == b, "whose event it is");
	WORKS(rdma_ack_cm_event(event));
	WORKS(rdma_resolve_addr(b, NULL, ADDRESS(here), 100));
	pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(b->verbs == a->verbs && rdma_get_dst_port(b) == here.sin_port, "one context for all ids");
	WORKS(ibv_query_device(a->verbs, &attr));
	struct ibv_context **devices = rdma_get_devices(&count);
	for (int i = 0; i < count; i++)
		found |= devices[i] == a->verbs;
	CHECK(found && !devices[count], "the context is among the devices");
	rdma_free_devices(devices);
	WORKS(rdma_destroy_id(a));
	WORKS(rdma_destroy_id(b));
	rdma_destroy_event_channel(channel);
}

struct pair {
	struct rdma_event_channel *here, *there;
	struct rdma_cm_id *listener, *client;
};

static struct ibv_qp_init_attr queue_pair(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
}

/* A listener, and a client whose route to it is resolved. */
static struct pair facing(void)
{
	struct sockaddr_in address = at("127.0.0.1", 0);
	struct pair pair = {.here = rdma_create_event_channel(), .there = rdma_create_event_channel()};
	WORKS(rdma_create_id(pair.here, &pair.listener, &pair, RDMA_PS_TCP));
	WORKS(rdma_bind_addr(pair.listener, ADDRESS(address)));
	WORKS(rdma_listen(pair.listener, 4));
	address.sin_port = rdma_get_src_port(pair.listener);
	WORKS(rdma_create_id(pair.there, &pair.client, NULL, RDMA_PS_TCP));
	WORKS(rdma_resolve_addr(pair.client, NULL, ADDRESS(address), 1000));
	pass(pair.there, RDMA_CM_EVENT_ADDR_RESOLVED);
	WORKS(rdma_resolve_route(pair.client, 1000));
	pass(pair.there, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(pair.client->route.num_paths == 1 && pair.client->route.path_rec->mtu, "the path of the route");
	return pair;
}

static void part(struct pair *pair)
{
	WORKS(rdma_destroy_id(pair->client));
	WORKS(rdma_destroy_id(pair->listener));
	rdma_destroy_event_channel(pair->here);
	rdma_destroy_event_channel(pair->there);
}

static void connections(void)
{
	struct pair pair = facing();
	struct ibv_qp_init_attr init = queue_pair();
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5, .responder_resources = 3,
					.initiator_depth = 2, .retry_count = 6, .rnr_retry_count = 5};
	struct rdma_cm_event *event;
	char too_much[200] = {0}, received[16] = {0};

	WORKS(rdma_create_qp(pair.client, NULL, &init));
	CHECK(pair.client->qp && pair.client->send_cq && pair.client->recv_cq && init.cap.max_inline_data >= 16,
	      "a queue pair with its queues");
	FAILS(EINVAL, rdma_create_qp(pair.client, NULL, &init));
	struct rdma_conn_param large = {.private_data = too_much, .private_data_len = 57};
	FAILS(EINVAL, rdma_connect(pair.client, &large));
	WORKS(rdma_connect(pair.client, &param));
	event = expect(pair.here, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *server = event->id;
	CHECK(event->listen_id == pair.listener && server->context == pair.listener->context && server->verbs,
	      "a request's new id takes after its listener");
	CHECK(event->param.conn.private_data_len == 56 && !memcmp(event->param.conn.private_data, "hello", 6),
	      "the request's private data");
	CHECK(event->param.conn.responder_resources == 2 && event->param.conn.initiator_depth == 3 &&
		      event->param.conn.retry_count == 6 && event->param.conn.rnr_retry_count == 5 &&
		      event->param.conn.qp_num == pair.client->qp->qp_num,
	      "the request's parameters");
	init = queue_pair();
	WORKS(rdma_create_qp(server, NULL, &init));
	struct ibv_mr *mr = rdma_reg_msgs(server, received, sizeof received);
	WORKS(rdma_post_recv(server, NULL, received, sizeof received, mr));
	param.private_data = "welcome", param.private_data_len = 7;
	WORKS(rdma_accept(server, &param));
	WORKS(rdma_ack_cm_event(event));
	pass(pair.here, RDMA_CM_EVENT_ESTABLISHED);
	event = expect(pair.there, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK(event->param.conn.private_data_len == 196 && !memcmp(event->param.conn.private_data, "welcome", 8),
	      "the reply's private data");
	WORKS(rdma_ack_cm_event(event));
	struct ibv_wc wc;
	WORKS(rdma_post_send(pair.client, NULL, "over there", 11, NULL, IBV_SEND_SIGNALED | IBV_SEND_INLINE));
	CHECK(rdma_get_send_comp(pair.client, &wc) == 1 && rdma_get_recv_comp(server, &wc) == 1, "completions");
	CHECK(!strcmp(received, "over there"), "the message");
	WORKS(rdma_disconnect(pair.client));
	pass(pair.here, RDMA_CM_EVENT_DISCONNECTED);
	WORKS(rdma_disconnect(server));
	pass(pair.there, RDMA_CM_EVENT_DISCONNECTED);
	rdma_dereg_mr(mr);
	rdma_destroy_qp(server);
	rdma_destroy_qp(pair.client);
	CHECK(!pair.client->qp && !pair.client->send_cq, "nothing is left on the id");
	WORKS(rdma_destroy_id(server));
	part(&pair);
}

static void rejections(void)
{
	struct pair pair = facing();
	struct rdma_conn_param param = {.qp_num = 7};
	WORKS(rdma_connect(pair.client, &param));
	struct rdma_cm_event *event = expect(pair.here, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	WORKS(rdma_reject(event->id, "full", 4));
	struct rdma_cm_id *refused = event->id;
	WORKS(rdma_ack_cm_event(event));
	WORKS(rdma_destroy_id(refused));
	event = expect(pair.there, RDMA_CM_EVENT_REJECTED, 28);
	CHECK(event->param.conn.private_data_len == 148 && !memcmp(event->param.conn.private_data, "full", 5),
	      "the refusal's private data");
	WORKS(rdma_ack_cm_event(event));
	part(&pair);

	/* A synchronous id tells by errno. */
	struct sockaddr_in closed = at("127.0.0.1", 4);
	struct rdma_cm_id *id;
	WORKS(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	WORKS(rdma_resolve_addr(id, NULL, ADDRESS(closed), 1000));
	CHECK(id->event->event == RDMA_CM_EVENT_ADDR_RESOLVED, "the event of a synchronous call stays with the id");
	WORKS(rdma_resolve_route(id, 1000));
	FAILS(ECONNREFUSED, rdma_connect(id, &param));
	CHECK(id->event->status == 8, "nobody listens");
	WORKS(rdma_destroy_id(id));
}

static struct rdma_event_channel *busy_channel;
static volatile int is_over;

static void *take_all_events(void *unused)
{
	struct rdma_cm_event *event;
	while (!is_over) {
		if (rdma_get_cm_event(busy_channel, &event)) {
			CHECK(errno == EAGAIN, "an event loop fails while ids are destroyed: %s", strerror(errno));
			continue;
		}
		WORKS(rdma_ack_cm_event(event));
	}
	return unused;
}

/* While one thread takes the events of a channel, another destroys ids whose events are just coming. */
static void destroyed_elsewhere(void)
{
	busy_channel = rdma_create_event_channel();
	WORKS(fcntl(busy_channel->fd, F_SETFL, O_NONBLOCK));
	pthread_t loop;
	WORKS(pthread_create(&loop, NULL, take_all_events, NULL));
	for (int i = 0; i < 3000; i++) {
		struct sockaddr_in to = at("127.0.0.1", 7999);
		struct rdma_cm_id *id;
		WORKS(rdma_create_id(busy_channel, &id, NULL, RDMA_PS_TCP));
		WORKS(rdma_resolve_addr(id, NULL, ADDRESS(to), 1000));
		WORKS(rdma_destroy_id(id));
	}
	is_over = 1;
	WORKS(pthread_join(loop, NULL));
	rdma_destroy_event_channel(busy_channel);
}

static struct sockaddr_in listens;
static volatile int ready_threads;

static int descriptors(void)
{
	int count = 0;
	DIR *all = opendir("/proc/self/fd");
	while (readdir(all))
		count++;
	closedir(all);
	return count;
}

/* Whatever comes of it, it comes back. */
static void *call_at_random(void *argument)
{
	struct rdma_cm_id *id = argument;
	struct sockaddr_in own = at("127.0.0.1", 7997);
	struct rdma_conn_param param = {.qp_num = 7};
	unsigned seed = __sync_add_and_fetch(&ready_threads, 1);
	for (int i = 0; i < 40; i++) {
		errno = 0;
		switch (rand_r(&seed) % 10) {
		case 0: rdma_bind_addr(id, ADDRESS(own)); break;
		case 1:
		case 2: rdma_resolve_addr(id, NULL, ADDRESS(listens), 100); break;
		case 3:
		case 4: rdma_resolve_route(id, 100); break;
		case 5:
		case 6: rdma_connect(id, &param); break;
		case 7: rdma_disconnect(id); break;
		case 8: rdma_accept(id, NULL); break;
		case 9: rdma_migrate_id(id, i % 4 ? busy_channel : NULL); break;
		}
		CHECK(rdma_get_src_port(id) != 1, "a port of somewhere else");
	}
	return NULL;
}

static void *take_events_and_requests(void *unused)
{
	struct rdma_cm_event *event;
	struct pollfd waiting = {.fd = busy_channel->fd, .events = POLLIN};
	while (!is_over) {
		if (poll(&waiting, 1, 20) != 1 || rdma_get_cm_event(busy_channel, &event))
			continue;
		struct rdma_cm_id *request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
		WORKS(rdma_ack_cm_event(event));
		if (request)
			WORKS(rdma_destroy_id(request));
	}
	return unused;
}

/* Several threads make calls on one id, and in the middle of that it ends: nobody crashes or waits for ever, and neither
 * port nor descriptor is lost. */
static void threads_on_one_id(void)
{
	enum { THREADS = 3, ROUNDS = 40 };
	pthread_t loop, threads[THREADS];
	struct rdma_cm_id *listener;
	is_over = 0;
	busy_channel = rdma_create_event_channel();
	WORKS(fcntl(busy_channel->fd, F_SETFL, O_NONBLOCK));
	WORKS(pthread_create(&loop, NULL, take_events_and_requests, NULL));
	listens = at("127.0.0.1", 0);
	WORKS(rdma_create_id(busy_channel, &listener, NULL, RDMA_PS_TCP));
	WORKS(rdma_bind_addr(listener, ADDRESS(listens)));
	WORKS(rdma_listen(listener, 64));
	listens.sin_port = rdma_get_src_port(listener);
	int before = descriptors();
	for (int round = 0; round < ROUNDS; round++) {
		struct sockaddr_in own = at("127.0.0.1", 7997);
		struct rdma_cm_id *id, *next;
		/* A few of them synchronous: their calls wait. */
		WORKS(rdma_create_id(round % 10 ? busy_channel : NULL, &id, NULL, RDMA_PS_TCP));
		ready_threads = 10 * round;
		for (int i = 0; i < THREADS; i++)
			WORKS(pthread_create(&threads[i], NULL, call_at_random, id));
		while (ready_threads < 10 * round + THREADS)
			sched_yield();
		usleep(round * 50);
		WORKS(rdma_destroy_id(id));
		for (int i = 0; i < THREADS; i++)
			WORKS(pthread_join(threads[i], NULL));
		WORKS(rdma_create_id(busy_channel, &next, NULL, RDMA_PS_TCP));
		WORKS(rdma_bind_addr(next, ADDRESS(own)));
		WORKS(rdma_destroy_id(next));
	}
	CHECK(descriptors() == before, "%d descriptors are %d now", before, descriptors());
	WORKS(rdma_destroy_id(listener));
	is_over = 1;
	WORKS(pthread_join(loop, NULL));
	rdma_destroy_event_channel(busy_channel);
}

static void *make_and_destroy(void *argument)
{
	for (int i = 0; i < 50; i++) {
		struct ibv_qp_init_attr init = queue_pair();
		if (rdma_create_qp(argument, NULL, &init) == 0 || i % 3 == 0)
			rdma_destroy_qp(argument);
	}
	return NULL;
}

static void queue_pairs_of_threads(void)
{
	pthread_t threads[3];
	struct pair pair = facing();
	int before = descriptors();
	for (int i = 0; i < 3; i++)
		WORKS(pthread_create(&threads[i], NULL, make_and_destroy, pair.client));
	for (int i = 0; i < 3; i++)
		WORKS(pthread_join(threads[i], NULL));
	if (pair.client->qp)
		rdma_destroy_qp(pair.client);
	CHECK(!pair.client->send_cq && !pair.client->recv_cq_channel, "no queue is left");
	CHECK(descriptors() == before, "no channel is lost");
	part(&pair);
}

static void libraries(void)
{
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "librdmacm.so" : "librdmacm.so.1";
		void *library = dlopen(name, RTLD_NOW);
		CHECK(library && dlsym(library, "rdma_create_id") == (void *)rdma_create_id, "%s is ours", name);
		CHECK(dlvsym(library, "rdma_get_remote_ece", "RDMACM_1.3"), "%s has version nodes", name);
		dlclose(library);
	}
	int (*write_event)(struct rdma_cm_id *, int, int, uint64_t) = dlsym(RTLD_DEFAULT, "rdma_write_cm_event");
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	WORKS(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
	FAILS(EINVAL, write_event(id, RDMA_CM_EVENT_ESTABLISHED, 5, 77));
	WORKS(write_event(id, 18, 5, 77));
	struct rdma_cm_event *event = expect(channel, 18, 5);
	CHECK(event->id == id && *(uint64_t *)&event->param == 77, "the program's own event");
	WORKS(rdma_ack_cm_event(event));
	WORKS(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void children(void)
{
	struct pair pair = facing();
	pid_t child = fork();
	if (!child) {
		struct rdma_cm_event *event;
		FAILS(ENODEV, rdma_listen(pair.listener, 1));
		FAILS(ENODEV, rdma_get_cm_event(pair.here, &event));
		part(&pair);
		connections();
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status), "the child: %#x", status);
	struct rdma_conn_param param = {.qp_num = 7};
	WORKS(rdma_connect(pair.client, &param));
	struct rdma_cm_event *event = expect(pair.here, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *request = event->id;
	WORKS(rdma_ack_cm_event(event));
	WORKS(rdma_destroy_id(request));
	part(&pair);
}

/* Every call on an id whose device has failed. */
static void no_device(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	int (*resolve)(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *) =
		dlsym(RTLD_DEFAULT, "rdma_resolve_addrinfo");
	int (*write_event)(struct rdma_cm_id *, int, int, uint64_t) = dlsym(RTLD_DEFAULT, "rdma_write_cm_event");
	struct sockaddr_in here = at("127.0.0.1", 0), group_address = at("239.7.7.9", 0);
	struct rdma_cm_join_mc_attr_ex group = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS,
						.addr = ADDRESS(group_address)};
	struct rdma_conn_param param = {.qp_num = 7};
	struct ibv_qp_init_attr init = queue_pair();
	struct ibv_qp_init_attr_ex init_ex = {.cap = init.cap, .qp_type = IBV_QPT_RC};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq_init_attr_ex srq_ex = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	struct ibv_ece ece = {0};
	uint8_t byte = 0;
	int mask, on = 1;

	FAILS(EIO, rdma_bind_addr(id, ADDRESS(here)));
	FAILS(EIO, rdma_listen(id, 1));
	FAILS(EIO, rdma_resolve_addr(id, NULL, ADDRESS(here), 1));
	FAILS(EIO, rdma_resolve_route(id, 1));
	FAILS(EIO, resolve(id, "127.0.0.1", "1", NULL));
	FAILS(EIO, rdma_connect(id, NULL));
	FAILS(EIO, rdma_connect(id, &param));
	FAILS(EIO, rdma_accept(id, NULL));
	FAILS(EIO, rdma_accept(id, &param));
	if (!id->qp)
		FAILS(EIO, rdma_establish(id));
	FAILS(EIO, rdma_reject(id, "no", 2));
	FAILS(EIO, rdma_reject_ece(id, "no", 2));
	FAILS(EIO, rdma_notify(id, IBV_EVENT_COMM_EST));
	FAILS(EIO, rdma_disconnect(id));
	FAILS(EIO, rdma_init_qp_attr(id, &attr, &mask));
	if (!id->qp) {
		FAILS(EIO, rdma_create_qp(id, NULL, &init));
		FAILS(EIO, rdma_create_qp_ex(id, &init_ex));
	}
	FAILS(EIO, rdma_create_srq(id, NULL, &srq));
	FAILS(EIO, rdma_create_srq_ex(id, &srq_ex));
	FAILS(EIO, rdma_join_multicast(id, ADDRESS(group_address), NULL));
	FAILS(EIO, rdma_join_multicast_ex(id, &group, NULL));
	FAILS(EIO, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
	FAILS(EIO, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
	FAILS(EIO, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on));
	FAILS(EIO, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1));
	FAILS(EIO, rdma_set_local_ece(id, &ece));

	/* What is left can be looked at. */
	WORKS(rdma_get_remote_ece(id, &ece));
	WORKS(rdma_migrate_id(id, channel));
	WORKS(write_event(id, 18, 5, 77));
	WORKS(rdma_ack_cm_event(expect(channel, 18, 5)));
	CHECK(rdma_get_src_port(id), "the id keeps its port");
}

/* The first message that leaves is the end of the device, by a fault rule: of all of the process. */
static void device_that_fails(void)
{
	struct pair pair = facing(), other = facing();
	struct rdma_conn_param param = {.retry_count = 7};
	struct ibv_qp_init_attr init = queue_pair();
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in here = at("127.0.0.1", 0), group = at("239.7.7.9", 0);
	struct rdma_cm_id *bound, *member, *idle, *synchronous, *request;
	struct rdma_addrinfo *found, hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP};
	int count;

	WORKS(rdma_create_id(channel, &bound, NULL, RDMA_PS_TCP));
	WORKS(rdma_bind_addr(bound, ADDRESS(here)));
	WORKS(rdma_create_id(channel, &member, NULL, RDMA_PS_UDP));
	WORKS(rdma_bind_addr(member, ADDRESS(here)));
	WORKS(rdma_join_multicast(member, ADDRESS(group), NULL));
	WORKS(rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN, 0)));
	WORKS(rdma_create_id(NULL, &synchronous, NULL, RDMA_PS_TCP));
	WORKS(rdma_bind_addr(synchronous, ADDRESS(here)));
	WORKS(rdma_listen(synchronous, 1));
	WORKS(rdma_create_id(channel, &idle, NULL, RDMA_PS_TCP));
	WORKS(rdma_create_qp(pair.client, NULL, &init));
	WORKS(rdma_connect(pair.client, &param));

	/* Each id that is on the device is told. */
	pass(pair.there, RDMA_CM_EVENT_DEVICE_REMOVAL);
	pass(pair.here, RDMA_CM_EVENT_DEVICE_REMOVAL);
	pass(other.there, RDMA_CM_EVENT_DEVICE_REMOVAL);
	pass(other.here, RDMA_CM_EVENT_DEVICE_REMOVAL);
	pass(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
	pass(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
	FAILS(EINVAL, rdma_get_request(synchronous, &request));

	no_device(pair.client, pair.there);
	no_device(pair.listener, pair.here);
	no_device(other.client, other.there);
	no_device(bound, channel);
	no_device(member, channel);
	no_device(synchronous, channel);
	FAILS(EIO, rdma_bind_addr(idle, ADDRESS(here)));
	FAILS(EIO, rdma_listen(idle, 1));
	FAILS(EIO, rdma_resolve_addr(idle, NULL, ADDRESS(here), 1));
	WORKS(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found));
	FAILS(EIO, rdma_create_ep(&request, found, NULL, NULL));
	rdma_freeaddrinfo(found);
	struct ibv_context **devices = rdma_get_devices(&count);
	CHECK(devices && count == 1 && devices[0] == bound->verbs, "the device is still listed");
	rdma_free_devices(devices);

	/* And everything can be put away. */
	WORKS(rdma_leave_multicast(member, ADDRESS(group)));
	rdma_destroy_qp(pair.client);
	WORKS(rdma_destroy_id(bound));
	WORKS(rdma_destroy_id(member));
	WORKS(rdma_destroy_id(idle));
	rdma_destroy_ep(synchronous);
	part(&pair);
	part(&other);
	rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "device-that-fails")) {
		device_that_fails();
		puts("all is well");
		return 0;
	}
	wrong_arguments();
	addresses_of_infiniband();
	addresses();
	connections();
	rejections();
	destroyed_elsewhere();
	threads_on_one_id();
	queue_pairs_of_threads();
	libraries();
	children();
	puts("all is well");
	return 0;
}

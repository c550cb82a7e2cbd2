/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls in which the host waits for the GPU. */
#pragma once

/* Argument: the stream, of a call that waits for one. */
static __always_inline void count_wait(struct hit *hit, struct frame *frame)
{
	__u64 duration = hit->time - frame->start;
	__u64 stream = KIND_OF(hit->flags) == WAIT && hit->positions ? stream_of(frame->argument[0]) : ANY_STREAM;
	struct event *event;

	count(hit->thread, SYNC, frame->phase, duration, 0);
	if (!has_failed(hit))
		settle_collectives(hit->thread, stream, frame->start, hit->time);
	if (duration < settings.long_wait)
		return;
	event = new_event(hit->thread, INTERVAL_SYNC, frame->start, hit->time);
	if (!event)
		return;
	event->phase = frame->phase;
	event->flags = hit->flags;
	emit(event);
}

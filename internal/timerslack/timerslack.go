// Package timerslack has the kernel wake this process less often.
//
// Under load the Go runtime's watcher thread (sysmon) sleeps for 20 us again and
// again. Linux may end a sleep late by the thread's timer slack, 50 us unless told
// otherwise, so the watcher wakes some 14,000 times a second; on a virtual machine
// that is a tenth of a busy proxy's processor time (docs/decisions/024). With a wider
// slack it wakes as often as there is something to watch. What else sleeps ends late
// by as much: nothing here is timed finer than milliseconds.
package timerslack

import "time"

// Width is the slack that Widen asks for.
const Width = time.Millisecond

// Variable is the environment variable that keeps the slack as it is when its value
// is "keep".
const Variable = "LLMGUARD_TIMER_SLACK"

// done is the variable's value in a process that Widen has started anew.
const done = "widened"

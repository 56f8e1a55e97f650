package webhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestAlertsOfAnHour: of the alerts of one org, whatever their types and the processes that send them, a target
// with PerHour gets so many in an hour, and after it one that counts the others. Repetitions count once, and
// the alerts of other orgs and hours are not affected.
func TestAlertsOfAnHour(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	chat, server := newReceiver(t, nil), newReceiver(t, nil)
	org := to(t, chat)
	org.Endpoints[0].Slack, org.Endpoints[0].PerHour = true, 20
	org.Endpoints = append(org.Endpoints, to(t, server).Endpoints...)
	one, two := s.sender(org, chat), s.sender(org, chat)
	hour := time.Now().Add(time.Hour).Truncate(time.Hour) // in the future, so that the count is not due yet
	alert := func(from, typ string, n int, at time.Time) Event {
		e := NewEvent(typ, fmt.Sprintf("%s-%d", from, n), at)
		e.Org, e.Text, e.Data = from, fmt.Sprintf("%s %d.", from, n), "{}"
		return e
	}
	for range 2 { // the second time are repetitions
		for n := range 100 {
			send(t, one, alert("noisy", BrakeFired, n, hour.Add(time.Duration(n)*time.Second)))
			if n%2 == 0 {
				send(t, two, alert("noisy", RunReached, n, hour))
			}
		}
	}
	send(t, two, alert("quiet", BrakeFired, 1, hour))
	send(t, two, alert("noisy", BrakeFired, 1, hour.Add(-time.Hour)))
	run(t, one)
	texts := func(from string) (n int, last string) {
		for _, p := range chat.got() {
			if strings.Contains(p.body, from) {
				n, last = n+1, p.body
			}
		}
		return n, last
	}
	redistest.Eventually(t, "all alerts within the bound, and those of the other target", func() bool {
		noisy, _ := texts("noisy")
		quiet, _ := texts("quiet")
		return noisy == 20 && quiet == 1 && len(server.got()) == 151
	})
	tasks, err := one.metrics.waiting.tasks.(*asynq.Inspector).ListScheduledTasks(queueName)
	if err != nil || len(tasks) != 1 || !tasks[0].NextProcessAt.Equal(hour.Add(time.Hour)) {
		t.Fatalf("got %v, %v, want one task at %s", tasks, err, hour.Add(time.Hour))
	}
	if err := one.metrics.waiting.tasks.(*asynq.Inspector).RunTask(queueName, tasks[0].ID); err != nil {
		t.Fatal(err)
	}
	settled(t, one)
	n, last := texts("noisy")
	if want := "and 130 more alerts of org noisy " + figures.Between(hour.UTC(), hour.UTC().Add(time.Hour)); n != 21 ||
		!strings.Contains(last, want) || !strings.Contains(last, " brake.fired, ") {
		t.Errorf("got %d alerts, the last %s, want 21 and %q", n, last, want)
	}
}

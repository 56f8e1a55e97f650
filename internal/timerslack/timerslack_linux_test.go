package timerslack

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// asChild has the test binary be a program that widens its slack and says what it has.
const asChild = "LLMGUARD_TEST_TIMER_SLACK"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	Widen()
	fmt.Println(os.Getpid(), strings.Join(os.Args[1:], "|"), os.Getenv(Variable) == done, slacks())
}

// slacks returns the different slacks of eight threads, in nanoseconds.
func slacks() map[int]bool {
	var mu sync.Mutex
	var ready, wg sync.WaitGroup
	seen := map[int]bool{}
	ready.Add(8)
	for range 8 {
		wg.Go(func() {
			runtime.LockOSThread()
			ready.Done()
			ready.Wait() // all at once, so that each has a thread of its own
			mu.Lock()
			seen[slack()] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	return seen
}

// child runs the program and returns what it printed without its process id, and
// whether that is the id of the process that was started.
func child(t *testing.T, value string) (said string, same bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "one", "two words")
	cmd.Env = append(os.Environ(), asChild+"=1", Variable+"="+value)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, said, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return said, pid == fmt.Sprint(cmd.Process.Pid)
}

func TestWiden(t *testing.T) {
	if slack() > int(Width) {
		t.Skipf("this process has a slack of %d ns already", slack())
	}
	said, same := child(t, "")
	want := fmt.Sprintf("one|two words false map[%d:true]", Width)
	if said != want || !same {
		t.Errorf("after Widen: %q, same process %v; want %q, true", said, same, want)
	}
}

// A slack that its environment wants kept, or that is wide already, stays.
func TestWidenNothing(t *testing.T) {
	said, same := child(t, "keep")
	if want := fmt.Sprintf("one|two words false map[%d:true]", slack()); said != want || !same {
		t.Errorf("told to keep it: %q, same process %v; want %q, true", said, same, want)
	}
	runtime.LockOSThread() // its slack goes with it at the end of the test
	if !setSlack(2 * Width) {
		t.Skip("the kernel refuses a slack")
	}
	said, same = child(t, "")
	if want := fmt.Sprintf("one|two words false map[%d:true]", 2*Width); said != want || !same {
		t.Errorf("with a wider one: %q, same process %v; want %q, true", said, same, want)
	}
}

// Started anew, it does not start itself again, whatever slack it has then.
func TestWidenOnce(t *testing.T) {
	said, _ := child(t, done)
	if want := fmt.Sprintf("one|two words false map[%d:true]", slack()); said != want {
		t.Errorf("started anew: %q, want %q", said, want)
	}
}

package journal

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// child puts and deletes forever and prints each completed operation.
func child(dir string) {
	j, err := Open(dir, Options{})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	for _, r := range j.Records() {
		fmt.Println("has", r.ID, string(r.Data))
	}
	fmt.Println("ready")
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				if err := j.Put(context.Background(), id, []byte("v"+id)); err != nil {
					fmt.Println("error", err)
					return
				}
				fmt.Println("put", id)
				if i%3 == 0 {
					fmt.Println("del", id)
					j.Delete(id)
				}
			}
		}()
	}
	time.Sleep(time.Minute) // it is killed long before
}

// TestKilled: after a process is killed, everything that was acknowledged to it is on disk.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	promised := map[string]bool{}
	deleted := map[string]bool{}
	for round := range 4 {
		cmd := redistest.Process(t, os.Args[0])
		cmd.Env = append(os.Environ(), "LLMGUARD_JOURNAL_CHILD="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		most := 2000 + rand.IntN(20_000)
		chunk := make([]byte, 4096)
		for text.Len() < most {
			n, err := out.Read(chunk)
			text.Write(chunk[:n])
			if err != nil {
				break
			}
		}
		_ = cmd.Process.Kill()
		_, _ = text.ReadFrom(out)
		_ = cmd.Wait()
		has := map[string]bool{}
		for line := range strings.Lines(text.String()) {
			what, id, whole := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if !strings.HasSuffix(line, "\n") {
				continue
			}
			switch what {
			case "has":
				id, data, _ := strings.Cut(id, " ")
				if data != "v"+id {
					t.Errorf("%s has %q", id, data)
				}
				has[id] = true
			case "ready":
				for id := range promised {
					if !has[id] && !deleted[id] {
						t.Errorf("round %d: %s was promised and is gone", round, id)
					}
				}
			case "put":
				promised[id] = true
			case "del":
				deleted[id] = true
			case "error":
				t.Error(id, whole)
			}
		}
	}
	if len(promised) < 20 {
		t.Errorf("only %d records: the test tries nothing", len(promised))
	}
}

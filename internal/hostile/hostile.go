// Package hostile has callers who mean harm, with keys that are good: they announce bodies
// that do not come, send all of a body but its end, and do not take their answers. It is
// for tests and benchmarks.
package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Crowd is how many connections of each kind there are.
type Crowd struct {
	// Absent bodies are announced and do not come; Unfinished ones lack their last byte.
	Absent, Unfinished int
	// Unread answers are asked for and not taken.
	Unread int
	// Size is that of the bodies, in bytes.
	Size int
	// Rate is how fast unfinished bodies are sent, in bytes a second; 0: at once.
	Rate int
}

// pause is how long one who was refused stays away.
const pause = time.Second

// Attack keeps the connections to an address open, and opens them again where they are
// closed, until ctx ends. It returns when all are closed.
func (c Crowd) Attack(ctx context.Context, addr, key string) {
	var all sync.WaitGroup
	defer all.Wait()
	start := func(n int, send func(net.Conn)) {
		for range n {
			all.Go(func() {
				for ctx.Err() == nil {
					hold(ctx, addr, send)
					select {
					case <-ctx.Done():
					case <-time.After(pause):
					}
				}
			})
		}
	}
	start(c.Absent, func(conn net.Conn) {
		if head(conn, "chat/completions", key, c.Size) == nil {
			awaitAnswer(conn)
		}
	})
	start(c.Unfinished, func(conn net.Conn) {
		go c.send(ctx, conn, key)
		awaitAnswer(conn)
	})
	start(c.Unread, func(conn net.Conn) {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		body := `{"model":"text-embedding-3-small","input":["a"` + strings.Repeat(`,"a"`, 199) + `]}`
		if head(conn, "embeddings", key, len(body)) == nil {
			_, _ = io.WriteString(conn, body)
			<-ctx.Done()
		}
	})
}

// hold opens a connection, which is closed when ctx ends.
func hold(ctx context.Context, addr string, send func(net.Conn)) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	send(conn)
}

func head(conn net.Conn, path, key string, length int) error {
	_, err := fmt.Fprintf(conn,
		"POST /v1/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: "+
			"%d\r\n\r\n",
		path, key, length)
	return err
}

// send sends a body but for its last byte.
func (c Crowd) send(ctx context.Context, conn net.Conn, key string) {
	if head(conn, "chat/completions", key, c.Size) != nil {
		return
	}
	piece := make([]byte, 16<<10)
	for left := c.Size - 1; left > 0 && ctx.Err() == nil; {
		n, err := conn.Write(piece[:min(left, len(piece))])
		if err != nil {
			return
		}
		left -= n
		if c.Rate > 0 {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(c.Rate))
		}
	}
}

// awaitAnswer waits for the first line of an answer, or the end of the connection.
func awaitAnswer(conn net.Conn) { _, _ = bufio.NewReader(conn).ReadString('\n') }

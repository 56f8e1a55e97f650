// Limiter answers at most 10 requests in 10 s of each client, counted by all its processes in Redis.
package main

import (
	"io"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/goredis"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS"), ContextTimeoutEnabled: true})
	limiter, err := budget.NewLimiter(goredis.New(rdb), "api", budget.Rate(10, 10*time.Second))
	if err != nil {
		panic(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") })
	server := &http.Server{
		Addr: os.Getenv("LISTEN"), ReadHeaderTimeout: time.Minute,
		Handler: budget.Middleware(limiter, budget.ByAddress)(hello),
	}
	panic(server.ListenAndServe())
}

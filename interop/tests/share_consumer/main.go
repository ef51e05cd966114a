// A member of a share group with franz-go: `program BOOTSTRAP TOPIC GROUP`. It prints the values of the records that it has accepted.
// With CA_FILE in the environment, it uses TLS and SCRAM-SHA-256 with SASL_USER and SECRET.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func security() []kgo.Opt {
	file := os.Getenv("CA_FILE")
	if file == "" {
		return nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	login := scram.Auth{User: os.Getenv("SASL_USER"), Pass: os.Getenv("SECRET")}
	return []kgo.Opt{
		kgo.DialTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}),
		kgo.SASL(login.AsSha256Mechanism()),
	}
}

func main() {
	bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3]
	options := append(security(), kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ShareGroup(group))
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			panic(err)
		}
		records := fetches.Records()
		client.MarkAcks(kgo.AckAccept, records...)
		if err := client.FlushAcks(ctx); err != nil {
			panic(err)
		}
		for _, record := range records {
			fmt.Println(string(record.Value))
		}
	}
}

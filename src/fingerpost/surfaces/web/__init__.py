"""One port for everything: what every surface that speaks HTTP shares. Knows nothing of tools.

asgi         requests and answers on raw ASGI: headers, bodies, faults
gate         who asks: the interface the surfaces see
access/      who asks: keys, signed tokens, hosts and origins
reach        what a caller may use, by their key and the profile they name
links        pages of the console that people are sent to
front        which surface answers a path
events       event streams to a client
hearing      working for a client only while it listens
pages        what browsers want to hear before a page may read an answer
rate         how often one caller may ask
port         a socket, the app behind it, and how both come to their end
connections  how long a request may take to arrive
"""

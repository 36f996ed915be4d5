"""The web: the ancestor's REST, the pages and the live log, served over HTTP.

It owns nothing: what it shows and changes, it asks the owners for.
"""
